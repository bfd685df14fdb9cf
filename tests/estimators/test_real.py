"""Real-valued outcomes against means and variances taken one pair at a time, and against right and wrong as 0 and 1."""

import numpy as np
import pytest
from bool_trials import BOTH, make_trials, random_trials, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from memfluence.errors import InputError
from memfluence.estimators import influence, memorization, real, real_influence, real_memorization
from memfluence.records import Kind

LEMMA = (Kind(0.7, None, "in"), Kind(0.7, None, "out"))


def one_pair(kept, left_out):
    """(value, Welch's standard error) of two samples."""
    with np.errstate(all="ignore"), pytest.warns() if not (len(kept) and len(left_out)) else np.errstate():
        value = kept.mean() - left_out.mean()
    if min(len(kept), len(left_out)) < 2:
        return value, np.nan
    return value, np.sqrt(kept.var(ddof=1) / len(kept) + left_out.var(ddof=1) / len(left_out))


def arms_of(trials, kinds):
    in_rows = trials.kinds == 0
    return in_rows, (in_rows if len(kinds) == 1 else ~in_rows)


@given(
    trials=st.integers(1, 40),
    kinds=st.sampled_from([BOTH, LEMMA]),
    centre=st.sampled_from([0.0, 1e6]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    tile=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_equals_one_pair_at_a_time(trials, kinds, centre, dtype, tile, seed):
    world = random_trials(trials, 9, 6, seed=seed, kinds=np.arange(trials) % len(kinds))
    mask, _, _ = unpacked(world)
    rng = np.random.default_rng(seed)
    centre = 0.0 if dtype == np.float16 else centre
    on_test, on_train = ((rng.normal(size=(trials, n)) + centre).astype(dtype) for n in (6, 9))
    in_rows, out_rows = arms_of(world, kinds)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TRIALS_AT_ONCE", "TRAIN_AT_ONCE", "TEST_AT_ONCE"):
            patch.setattr(real, name, tile)
        found = real_influence(world, kinds, on_test).block_with_errors()
    scores = real_memorization(world, kinds, on_train)
    close = {"rtol": 1e-9, "atol": 1e-12 * (1 + centre)}
    for i in range(9):
        in_arm, out_arm = in_rows & mask[:, i], out_rows & ~mask[:, i]
        for j in range(6):
            column = on_test[:, j].astype(float)
            expected = one_pair(column[in_arm], column[out_arm])
            np.testing.assert_allclose((found.value[i, j], found.stderr[i, j]), expected, **close)
        own = on_train[:, i].astype(float)
        expected = one_pair(own[in_arm], own[out_arm])
        np.testing.assert_allclose((scores.value[i], scores.stderr[i]), expected, **close)
        if in_arm.any():
            np.testing.assert_allclose(scores.mean_in[i], own[in_arm].mean(), **close)


def test_intervals_and_p_values_are_welchs():
    trials, rng = random_trials(40, 6, 4), np.random.default_rng(1)
    mask, _, _ = unpacked(trials)
    on_train, on_test = rng.exponential(size=(40, 6)), rng.normal(size=(40, 4)) + mask[:, :1]
    estimates, scores = real_influence(trials, BOTH, on_test), real_memorization(trials, BOTH, on_train)
    found, p_values = estimates.block_with_errors(), estimates.p_values(None, None, 0.3)
    for i in range(6):
        kept = mask[:, i]
        for j in range(4):
            expected = stats.ttest_ind(on_test[kept, j], on_test[~kept, j], equal_var=False)
            interval = expected.confidence_interval(0.95)
            np.testing.assert_allclose((found.lower[i, j], found.upper[i, j]), interval)
            shifted = stats.ttest_ind(on_test[kept, j] - 0.3, on_test[~kept, j], equal_var=False, alternative="greater")
            np.testing.assert_allclose(p_values[i, j], shifted.pvalue)
        own = stats.ttest_ind(on_train[kept, i], on_train[~kept, i], equal_var=False, alternative="greater")
        np.testing.assert_allclose(scores.p_value[i], own.pvalue)


def test_no_p_value_is_below_that_of_the_most_extreme_permutation():
    """Outcomes without any spread would say that 3 models against 2 are certain."""
    mask = np.array([[1, 0], [1, 0], [1, 0], [0, 0], [0, 0]], bool)
    outcome = mask[:, :1].astype(float)
    found = real_influence(make_trials(mask, outcome > 0), BOTH, outcome).p_values(None, None)
    np.testing.assert_allclose(found, [[1 / 10], [1.0]])  # the second example was never kept: nothing is known


COVERED = {
    "normal": lambda rng, n, kept: rng.normal(size=n) * (2 - kept),
    "absolute errors": lambda rng, n, kept: -(2 - kept) * abs(rng.normal(size=n)),
    "squared errors of biased models": lambda rng, n, kept: -((2 - kept + rng.normal(size=n)) ** 2),
    "learned by heart": lambda rng, n, kept: -2 * abs(rng.normal(size=n)) * (1 - kept),
    "shares of five labels": lambda rng, n, kept: rng.binomial(5, 0.6 + 0.3 * kept, size=n) / 5,
}
DIFFERENCES = {
    "normal": 0.0,
    "absolute errors": np.sqrt(2 / np.pi),
    "squared errors of biased models": 3.0,
    "learned by heart": 2 * np.sqrt(2 / np.pi),
    "shares of five labels": 0.3,
}


@pytest.mark.parametrize("world", COVERED)
def test_intervals_cover(world):
    """20,000 examples in 100 trials that keep 70 of 100: the 95% interval holds the difference for at least 94%."""
    rng, n = np.random.default_rng(list(COVERED).index(world)), 20_000
    mask = rng.permuted(np.arange(100)[:, None] < np.full(n, 70), axis=0)  # (trials, n)
    outcome = COVERED[world](rng, mask.shape, mask.astype(int))
    found = real_memorization(make_trials(mask, np.zeros((100, 1), bool), mask), BOTH, outcome)
    covered = (found.lower <= DIFFERENCES[world]) & (DIFFERENCES[world] <= found.upper)
    assert covered.mean() >= 0.94


@pytest.mark.parametrize("kinds", [BOTH, LEMMA])
def test_right_and_wrong_as_numbers_give_the_same_estimates(kinds):
    trials = random_trials(80, 30, 20, kinds=np.arange(80) % len(kinds))
    _, train_correct, test_correct = unpacked(trials)
    of_bits, of_numbers = influence(trials, kinds), real_influence(trials, kinds, test_correct)
    np.testing.assert_allclose(of_numbers.block(), of_bits.block(), atol=1e-14)
    expected = memorization(trials, kinds)
    found = real_memorization(trials, kinds, train_correct.astype(np.float32))
    np.testing.assert_allclose(found.value, expected.value, atol=1e-14)
    np.testing.assert_allclose(found.mean_out, expected.accuracy_out, atol=1e-14)


def test_parts_and_scans_agree_with_the_matrix():
    trials = random_trials(50, 40, 15)
    outcome = np.random.default_rng(0).normal(size=(50, 15)).astype(np.float32)
    estimates = real_influence(trials, BOTH, outcome)
    errors = estimates.block_with_errors()
    whole = estimates.block()
    np.testing.assert_array_equal(whole, errors.value)
    labels = np.arange(40) % 3, np.arange(15) % 4
    for block in estimates.class_blocks(*labels):
        np.testing.assert_allclose(block.values, whole[block.train][:, block.test], atol=1e-12)
    np.testing.assert_array_equal(estimates.top_k(3).index, np.argsort(-whole, axis=0, kind="stable")[:3].T)
    np.testing.assert_array_equal(estimates.top_tests(3).index, np.argsort(-whole, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(np.stack(estimates.at_least(0.3)), np.nonzero(whole >= 0.3))
    pairs = estimates.at([3, 8, 3], [1, 1, 9])
    np.testing.assert_allclose(pairs.value, whole[[3, 8, 3], [1, 1, 9]], atol=1e-12)
    np.testing.assert_allclose(pairs.stderr, errors.stderr[[3, 8, 3], [1, 1, 9]], atol=1e-12)


def test_what_is_not_a_number_stays_with_its_example():
    trials = random_trials(50, 10, 5)
    outcome = np.random.default_rng(0).normal(size=(50, 5))
    clean = real_influence(trials, BOTH, outcome).block()
    outcome[7, 2] = np.nan
    found = real_influence(trials, BOTH, outcome).block()
    assert np.isnan(found[:, 2]).all()
    np.testing.assert_array_equal(np.delete(found, 2, axis=1), np.delete(clean, 2, axis=1))


def test_models_of_one_mask_count_once_in_the_errors():
    rng = np.random.default_rng(0)
    mask = np.repeat(rng.random((20, 6)) < 0.5, 3, axis=0)
    outcome = np.repeat(rng.normal(size=(20, 4)), 3, axis=0)  # models of one mask agree: thrice the same
    once = real_influence(make_trials(mask[::3], outcome[::3] > 0), BOTH, outcome[::3]).block_with_errors()
    thrice = real_influence(make_trials(mask, outcome > 0, repeats=3), BOTH, outcome).block_with_errors()
    np.testing.assert_allclose(thrice.value, once.value, atol=1e-12)
    kept = mask[::3].sum(axis=0)
    ratio = (1 - 1 / np.stack([kept, 20 - kept])) / (1 - 1 / (3 * np.stack([kept, 20 - kept])))  # of the variances
    assert (thrice.stderr <= once.stderr * (1 + 1e-9)).all()
    assert (thrice.stderr >= once.stderr * np.sqrt(ratio.min(axis=0))[:, None] * (1 - 1e-9)).all()


def test_outcomes_of_the_wrong_shape_are_said():
    trials = random_trials(9, 8, 7)
    with pytest.raises(InputError, match=r"\(trials, n_test\) = \(9, 7\); got float64 of \(9, 8\)"):
        real_influence(trials, BOTH, np.zeros((9, 8)))
    with pytest.raises(InputError, match=r"\(trials, n_train\) = \(9, 8\); got <U1"):
        real_memorization(trials, BOTH, np.full((9, 8), "a"))
