"""Memorization against the ten lines anyone would write."""

import numpy as np
from bool_trials import BOTH, make_trials, random_trials, unpacked

from memfluence.estimators import memorization
from memfluence.records import Kind


def plain(mask, correct):
    right_in, right_out = (mask & correct).sum(0), (~mask & correct).sum(0)
    return right_in / mask.sum(0) - right_out / (~mask).sum(0)


def test_equals_the_plain_computation_to_the_last_bit():
    trials = random_trials(137, 203, 5)
    mask, correct, _ = unpacked(trials)
    found = memorization(trials, BOTH)
    np.testing.assert_array_equal(found.value, plain(mask, correct))
    np.testing.assert_array_equal(found.accuracy_in, (mask & correct).sum(0) / mask.sum(0))
    np.testing.assert_array_equal(found.accuracy_out, (~mask & correct).sum(0) / (~mask).sum(0))
    np.testing.assert_array_equal(found.trials_in + found.trials_out, 137)


def test_what_trials_cannot_say_is_nan_with_its_counts():
    mask = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1]], dtype=bool)  # always in, never in, both
    found = memorization(make_trials(mask, np.ones((3, 2)), np.ones((3, 3))), BOTH)
    for array in (found.value, found.stderr, found.lower, found.upper):
        np.testing.assert_array_equal(np.isnan(array), [True, True, False])
    np.testing.assert_array_equal(np.isnan(found.accuracy_in), [False, True, False])
    np.testing.assert_array_equal(np.isnan(found.accuracy_out), [True, False, False])
    np.testing.assert_array_equal(found.trials_in, [3, 0, 2])
    np.testing.assert_array_equal(found.trials_out, [0, 3, 1])


def test_no_trials_at_all():
    found = memorization(random_trials(0, 5, 2), BOTH)
    assert np.isnan(found.value).all()
    assert (found.trials_in == 0).all()


def test_certain_outcomes_are_not_certain_estimates():
    mask = np.arange(20)[:, None] % 2 == 0  # (20, 1)
    found = memorization(make_trials(mask, np.ones((20, 1)), mask), BOTH)
    assert found.value == 1
    assert found.stderr > 0.05
    assert found.lower < 0.75
    assert found.upper == 1


def test_the_lemmas_arms_come_from_their_own_trials():
    trials = random_trials(200, 30, 2, kinds=np.arange(200) % 2)
    mask, correct, _ = unpacked(trials)
    found = memorization(trials, (Kind(0.7, 21, "in"), Kind(0.7, 20, "out")))
    first, second = (mask[::2], correct[::2]), (mask[1::2], correct[1::2])
    right_in, right_out = (first[0] & first[1]).sum(0), (~second[0] & second[1]).sum(0)
    np.testing.assert_array_equal(found.value, right_in / first[0].sum(0) - right_out / (~second[0]).sum(0))


def test_models_that_share_a_mask_count_once_in_errors():
    trials = random_trials(60, 10, 2)
    every_third = np.arange(60) // 3 * 3
    copies = make_trials(
        unpacked(trials)[0][every_third], unpacked(trials)[2][every_third], unpacked(trials)[1][every_third], repeats=3
    )
    once = trials.select(np.arange(0, 60, 3))
    found, expected = memorization(copies, BOTH), memorization(once, BOTH)
    np.testing.assert_allclose(found.value, expected.value)
    np.testing.assert_allclose(found.stderr, expected.stderr)
    np.testing.assert_array_equal(found.trials_in, 3 * expected.trials_in)
