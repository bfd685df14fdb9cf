"""p-values against enumeration and optimization by brute force, q-values against their definition."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studies
from memfluence.estimators import p_values, q_values
from memfluence.estimators.significance import fisher_p_values, harmonic, score_statistic


def by_permutation(right, kept):
    """The share of all ways to deal the mask out that give at least as many right ones among the kept."""
    observed = sum(right[k] for k in kept)
    every = list(combinations(range(len(right)), len(kept)))
    return sum(sum(right[k] for k in some) >= observed for some in every) / len(every)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=9), st.data())
def test_fisher_is_the_permutation_test(right, data):
    kept = data.draw(st.sets(st.integers(0, len(right) - 1), min_size=1, max_size=len(right)))
    x, y = sum(right[k] for k in kept), sum(right) - sum(right[k] for k in kept)
    found = fisher_p_values(x, len(kept), y, len(right) - len(kept))
    assert found == pytest.approx(by_permutation(right, kept), rel=1e-10)


@pytest.mark.parametrize("trials", [138, 4000])
def test_fisher_equals_scipy_far_into_the_tail(trials):
    from scipy.stats import hypergeom

    rng = np.random.default_rng(0)
    a = rng.integers(trials // 2, trials, 400)
    x, y = rng.binomial(a, rng.random(400)), rng.binomial(trials - a, rng.random(400))
    found = fisher_p_values(x, a, y, trials - a)
    expected = hypergeom.sf(x - 1, trials, x + y, a)
    seen = expected > 1e-250
    assert found[seen].min() < 1e-20
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-8)


def test_many_trials_do_not_overflow_the_table():
    assert fisher_p_values(30_000, 40_000, 20_000, 40_000) < 1e-300
    np.testing.assert_allclose(fisher_p_values([20_000] * 2, 40_000, 20_000, 40_000), 0.5, atol=0.01)


def test_shapes_and_empty_arms():
    assert fisher_p_values(np.zeros((0, 3), int), 4, 1, 5).shape == (0, 3)
    assert fisher_p_values(np.array([[1, 2], [3, 4]]), np.array([[4], [5]]), 1, 5).shape == (2, 2)
    assert fisher_p_values(0, 0, 2, 3) == 1
    assert p_values(0, 0, 2, 3, null=0.1) == 1


@pytest.mark.parametrize("null", [-0.3, 0.0, 0.05, 0.15, 0.6])
def test_score_statistic_maximizes_the_likelihood_under_the_null(null):
    rng = np.random.default_rng(3)
    q = np.linspace(max(0, -null), min(1, 1 - null), 200_001)[1:-1]  # every q with q + null in [0, 1]
    for _ in range(10):
        a, b = rng.integers(5, 80, 2)
        x, y = rng.integers(1, a), rng.integers(1, b)
        p = q + null
        likelihood = x * np.log(p) + (a - x) * np.log1p(-p) + y * np.log(q) + (b - y) * np.log1p(-q)
        best = likelihood.argmax()
        variance = p[best] * (1 - p[best]) / a + q[best] * (1 - q[best]) / b
        expected = (x / a - y / b - null) / np.sqrt(variance * (a + b) / (a + b - 1))
        assert score_statistic(x, a, y, b, null) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_score_at_the_ends():
    assert score_statistic(5, 5, 5, 5, 0.0) == 0
    assert score_statistic(5, 5, 0, 5, 0.5) > 0
    assert p_values(1, 50, 0, 50, null=0.3) > 0.999


@pytest.mark.parametrize(("q", "null"), [(0.3, 0.1), (0.6, 0.2), (0.8, 0.15), (0.9, 0.05), (0.05, 0.05)])
@pytest.mark.parametrize(("a", "b"), [(97, 41), (350, 150)])
def test_score_p_values_hold_their_level_into_the_tail(a, b, q, null):
    """At the null itself a p-value of at most L has a probability of at most L, but for a tenth; by enumeration."""
    x, y = np.arange(a + 1)[:, None], np.arange(b + 1)[None, :]
    weight = np.outer(studies.binomial(a, q + null), studies.binomial(b, q))
    p = p_values(x, a, y, b, null=null)
    for level in (0.05, 0.01, 1e-3, 1e-4, 1e-5):
        assert weight[p <= level].sum() < 1.1 * level
    assert weight[p <= 0.05].sum() > 0.045


def naive_selection(p, rate):
    """Benjamini and Hochberg by their definition."""
    ordered = sorted(p)
    below = [k for k in range(1, len(p) + 1) if ordered[k - 1] <= rate * k / len(p)]
    return {k for k in range(len(p)) if below and p[k] <= ordered[below[-1] - 1]}


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=30), st.floats(0.01, 0.49))
def test_q_values_select_what_the_procedure_selects(p, rate):
    p = np.array(p)
    q = q_values(p, len(p))
    sure = np.abs(q - rate) > 1e-12
    assert {k for k in np.flatnonzero(q <= rate) if sure[k]} == {k for k in naive_selection(p, rate) if sure[k]}
    yekutieli = q_values(p, len(p), any_dependence=True)
    np.testing.assert_allclose(yekutieli, np.minimum(1, naive_scaled(p)))
    # the small ones alone give the same answer
    small = p <= rate
    alone = q_values(p[small], len(p))
    np.testing.assert_allclose(alone[alone <= rate], q[small][alone <= rate])


def naive_scaled(p):
    factor = sum(1 / k for k in range(1, len(p) + 1))
    rank = {value: max(k for k, one in enumerate(sorted(p), 1) if one == value) for value in p}
    return [min(factor * len(p) * other / rank[other] for other in p if other >= value) for value in p]


def test_harmonic_number():
    assert harmonic(4) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)
    assert harmonic(10**6) == pytest.approx(np.sum(1 / np.arange(1, 10**6 + 1)), rel=1e-12)
