"""The variance of a mean over masks and test examples: the formula, and worlds whose variance is known."""

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import t as student

from memfluence.estimators.judging import Tally

MASKS, TESTS = 24, 16


def world(seed, of_mask, of_test, peculiar):
    """Cells (masks, tests) whose mean has the variance of_mask^2 / masks + of_test^2 / tests + peculiar^2 / both."""
    rng = np.random.default_rng(seed)
    cells = peculiar * rng.normal(size=(MASKS, TESTS))
    return cells + of_mask * rng.normal(size=(MASKS, 1)) + of_test * rng.normal(size=(1, TESTS))


def mean_of(cells, parts=1):
    tally = Tally(np.arange(len(cells)))
    for some in np.array_split(np.arange(cells.shape[1]), parts):
        values = cells[:, some].mean(axis=0)
        tally.add(values, cells[:, some] - values, np.ones(len(some), bool))
    return tally.mean()


def test_it_is_the_formula_however_it_is_gathered():
    cells = world(0, 1.0, 1.0, 2.0)
    psi = cells - cells.mean(axis=0)
    by_mask, pairs = psi.mean(axis=1), MASKS * (MASKS - 1)
    variance = (by_mask**2).sum() / pairs + cells.mean(axis=0).var(ddof=1) / TESTS
    variance -= ((psi - by_mask[:, None]) ** 2).sum() / (pairs * TESTS * (TESTS - 1))
    for found in (mean_of(cells), mean_of(cells, parts=5)):
        assert found.value == pytest.approx(cells.mean())
        assert found.stderr == pytest.approx(np.sqrt(variance))
        assert found.upper - found.value == pytest.approx(student.ppf(0.975, TESTS - 1) * found.stderr)
        assert found.test_examples == TESTS


@pytest.mark.parametrize(
    ("of_mask", "of_test", "peculiar"), [(1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 0, 0), (0, 1, 0), (0.5, 0.5, 3)]
)
def test_it_is_right_on_average(of_mask, of_test, peculiar):
    truth = of_mask**2 / MASKS + of_test**2 / TESTS + peculiar**2 / (MASKS * TESTS)
    found = [mean_of(world(seed, of_mask, of_test, peculiar)).stderr ** 2 for seed in range(1000)]
    assert np.mean(found) == pytest.approx(truth, abs=5 * np.std(found) / np.sqrt(1000) + 0.05 * truth)


def test_with_nothing_in_common_it_errs_on_the_wide_side_a_little():
    """All three terms estimate the same then, and V is not let below the last; resampling both would say 1.73."""
    found = [mean_of(world(seed, 0, 0, 1)).stderr ** 2 for seed in range(1000)]
    assert 1 < np.sqrt(np.mean(found) * MASKS * TESTS) < 1.15


def test_what_does_not_count_is_left_out():
    cells = world(1, 1.0, 1.0, 1.0)
    values = cells.mean(axis=0)
    tally, counts = Tally(np.arange(MASKS)), np.arange(TESTS) % 3 > 0
    tally.add(values, cells - values, counts)
    assert asdict(tally.mean()) == pytest.approx(asdict(mean_of(cells[:, counts])))
    nothing = Tally(np.arange(MASKS))
    nothing.add(values, cells - values, np.zeros(TESTS, bool))
    assert nothing.mean().test_examples == 0
    assert np.isnan([nothing.mean().value, nothing.mean().stderr, nothing.mean().lower]).all()
