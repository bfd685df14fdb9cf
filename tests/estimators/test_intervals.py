"""Published worked examples, and the properties that make these errors honest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import studies
from memfluence.estimators import difference
from memfluence.estimators.intervals import Z95, wilson_interval

# Newcombe (1998), Statistics in Medicine 17, 873-890, Table II, method 10, to the four decimals printed there.
NEWCOMBE = [
    (56, 70, 48, 80, 0.0524, 0.3339),
    (9, 10, 3, 10, 0.1705, 0.8090),
    (10, 10, 0, 10, 0.6075, 1.0000),
]


@pytest.mark.parametrize(("x", "a", "y", "b", "lower", "upper"), NEWCOMBE)
def test_newcombe_published_examples(x, a, y, b, lower, upper):
    found = studies.newcombe(np.array(x), np.array(a), np.array(y), np.array(b))
    assert found == pytest.approx((lower, upper), abs=5e-5)


def test_wilson_limits_solve_their_equation():
    """The limits of x/n are the p at which |x/n - p| is exactly z standard errors of p."""
    for x, n in [(1, 10), (81, 263), (15, 148), (9, 10)]:
        for limit in wilson_interval(np.array(x / n), np.array(n)):
            assert abs(x / n - limit) == pytest.approx(Z95 * np.sqrt(limit * (1 - limit) / n), rel=1e-9)


def test_wilson_stays_between_0_and_1():
    n = np.arange(1, 5000)
    low, high = wilson_interval(np.zeros(len(n)), n)
    assert (low == 0).all()
    assert (wilson_interval(np.ones(len(n)), n)[1] == 1).all()
    assert ((high > 0) & (high < 1)).all()


def test_wilson_at_the_ends():
    low, high = wilson_interval(np.array([0.0, 1.0]), np.array([10, 10]))
    assert low[0] == 0
    assert high[1] == 1
    assert high[0] == pytest.approx(Z95**2 / (10 + Z95**2))  # the closed form at 0
    assert low[1] == pytest.approx(10 / (10 + Z95**2))


def test_agresti_caffo_by_hand():
    # 7/10 and 2/8 become 8/12 and 3/10
    found = difference(np.array(7), np.array(10), np.array(2), np.array(8))
    error = np.sqrt((8 / 12) * (4 / 12) / 12 + 0.3 * 0.7 / 10)
    assert found.stderr == pytest.approx(error)
    assert found.value == 0.7 - 0.25
    assert found.lower == pytest.approx(8 / 12 - 0.3 - Z95 * error)
    assert found.upper == pytest.approx(8 / 12 - 0.3 + Z95 * error)


arm = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(arm, arm)
def test_never_certain_and_never_out_of_range(inside, outside):
    (x, a), (y, b) = inside, outside
    found = difference(np.array(x), np.array(a), np.array(y), np.array(b))
    assert found.value == x / a - y / b
    assert found.stderr > 0
    assert -1 - 1e-12 <= found.lower <= found.value <= found.upper <= 1 + 1e-12
    assert found.upper - found.lower > 0
    swapped = difference(np.array(y), np.array(b), np.array(x), np.array(a))
    assert swapped.lower == pytest.approx(-found.upper)
    assert swapped.stderr == pytest.approx(found.stderr)


def test_an_empty_arm_is_nan():
    with np.errstate(all="raise"):
        found = difference(np.array([0, 3]), np.array([0, 5]), np.array([2, 0]), np.array([4, 0]))
    for array in (found.value, found.stderr, found.lower, found.upper):
        assert np.isnan(array).all()


def test_fewer_independent_models_widen_the_interval():
    counts = [np.array(value) for value in (30, 40, 10, 40)]
    every = difference(*counts)
    fewer = difference(*counts, sample_in=np.array(10), sample_out=np.array(10))
    assert fewer.value == every.value
    assert fewer.stderr > every.stderr
    assert fewer.lower < every.lower
    assert fewer.upper > every.upper


def test_coverage_of_one_interval(soak):
    """At least 93% in every cell, on average 95% where no proportion is near 0 or 1, and no wider than Newcombe's."""
    options = {} if soak else {"worlds": 2000, "sizes": studies.ARMS[:2]}
    cells = studies.coverage("Agresti-Caffo (used)", **options)
    assert min(cell["exact"] for cell in cells) > 0.94
    assert min(cell["simulated"] for cell in cells) > (0.935 if soak else 0.93)
    for kind in ("exact", "simulated"):
        assert 0.945 < np.mean([cell[kind] for cell in cells if cell["inner"]]) < 0.96
    assert max(cell["width"] for cell in cells) < 1.1
    assert np.mean([cell["width"] for cell in cells]) < 1


def test_newcombes_interval_falls_short_at_the_ends():
    """Why it is not used."""
    assert min(cell["exact"] for cell in studies.coverage("Newcombe", worlds=1, sizes=studies.ARMS[:1])) < 0.93
