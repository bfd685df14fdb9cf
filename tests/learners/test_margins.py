"""Margins made on a device are those that are made of scores on the host."""

import numpy as np
import pytest
import torch

from memfluence.learners.nets import margins as module
from memfluence.learners.nets.margins import margins
from memfluence.learners.outcomes import _margin


@pytest.mark.parametrize("at_once", [3, 2**16])
def test_margins_of_a_device_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 10)
    scores = (100 * rng.normal(size=(2, 10, 4))).astype(np.float32)
    scores[0, 0], scores[0, 1], scores[1, 2] = 0, (1e30, -1e30, 0, 0), (0, -1e30, -1e30, -1e30)
    found = margins(torch.from_numpy(scores), labels)
    assert (found.dtype, found.shape) == (np.float16, (2, 10))
    assert found[0, 0] == 0
    assert set(np.abs(found).max(axis=1)) == {np.finfo(np.float16).max}
    for of_model, its_scores in zip(found, scores):
        assert np.array_equal(of_model, _margin(its_scores, labels))
        assert np.array_equal(of_model, margins(torch.from_numpy(its_scores), labels))
