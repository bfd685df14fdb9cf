"""Two that ask for different runs in one place: the later one has it, and the other's trials are not taken for its."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from engines.commands import DATA, LEARNER
from memfluence.engines.progress import Silent
from memfluence.errors import RunMismatchError
from memfluence.store import TrialStore
from memfluence.store.upkeep import verify
from memfluence.training.campaign import Campaign, prepare
from memfluence.training.options import RunOptions


class _Late(Silent):
    """Asks for another run when the first is created and has no trials yet."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    def start(self, total: int, done: int) -> None:
        data = self._campaign.dataset
        TrialStore.create(self._campaign.out, self._campaign.info, data.y_train, data.y_test)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_became_another_gets_no_trials(workers: int, tmp_path: Path) -> None:
    """Not even of workers that open it when it is another one already."""
    (tmp_path / "first.py").write_text(LEARNER)
    (tmp_path / "second.py").write_text(LEARNER.replace("normal", "laplace"))
    same: dict[str, Any] = {"trials": 6, "out": tmp_path / "run"}
    second = prepare(RunOptions(DATA, learner=f"{tmp_path / 'second'}.py:learn", progress=False, **same))
    late = {"workers": workers, "progress": _Late(second)}
    first = prepare(RunOptions(DATA, learner=f"{tmp_path / 'first'}.py:learn", **late, **same))
    with pytest.raises(RunMismatchError, match="has become a different run"):
        first.run()
    store = TrialStore.open(tmp_path / "run")
    assert store.info.learner == second.info.learner
    assert store.segment_names() == []
    assert store.failures() == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.run()
    found = verify(store.path, sample=6, learner=f"{tmp_path / 'second.py'}:learn")
    assert found.is_clean, found.problems
    assert found.trials == 6
