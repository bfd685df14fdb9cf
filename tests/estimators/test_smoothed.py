"""Smoothed outcomes: their limits, the order of their bias by integration, and the variance that they save."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from memfluence.estimators import smoothed


def values_of(margins, bandwidth):
    """K at margins, smoothed with a bandwidth."""
    margins = np.asarray(margins, dtype=float)
    return smoothed(margins[:, None], bandwidth / (margins.std() * len(margins) ** -0.2))[:, 0]


def test_far_from_zero_it_is_right_or_wrong():
    found = values_of([-50.0, -8.0, 0.0, 8.0, 50.0], 1.0)
    np.testing.assert_allclose(found, [0, 0, 0.5, 1, 1], atol=1e-6)


def test_margins_that_never_vary_stay_right_or_wrong():
    found = smoothed(np.tile([-2.0, 3.0], (10, 1)), 1.0)
    np.testing.assert_array_equal(found, np.tile([0.0, 1.0], (10, 1)))


def test_only_the_trials_asked_for_give_the_bandwidth():
    margins = np.random.default_rng(0).standard_normal((40, 1))
    used = np.arange(40)[:, None] < 30
    shifted = np.where(used, margins, margins + 100)
    np.testing.assert_allclose(smoothed(margins, 1.0, used)[:30], smoothed(shifted, 1.0, used)[:30])
    assert not np.allclose(smoothed(margins, 1.0)[:30], smoothed(shifted, 1.0)[:30])


def test_the_mean_for_normal_margins_is_the_closed_form():
    """And that misses P[u > 0] by a multiple of h**4."""
    centre, points = 0.7, (np.arange(400_000) + 0.5) / 400_000

    def mean(h):
        width = np.sqrt(1 + h * h)
        density = np.exp(-((centre / width) ** 2) / 2) / np.sqrt(2 * np.pi)
        return ndtr(centre / width) + centre * h * h / (2 * width**3) * density

    for h in (0.25, 0.5):
        found = values_of(centre + ndtri(points), h).mean(dtype=np.float64)
        assert found == pytest.approx(mean(h), abs=1e-6)
    bias = [mean(h) - ndtr(centre) for h in (0.05, 0.1)]
    assert bias[1] / bias[0] == pytest.approx(16, rel=0.03)


def test_it_varies_less_than_right_and_wrong():
    margins = np.random.default_rng(0).normal([0.0, 0.5, 1.0], size=(2000, 3))
    found = smoothed(margins, 2.0)
    assert (found.var(axis=0) < 0.9 * (margins > 0).var(axis=0)).all()
    np.testing.assert_allclose(found.mean(axis=0), (margins > 0).mean(axis=0), atol=0.01)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_to_smooth(shape):
    assert smoothed(np.empty(shape), 1.0).shape == shape
