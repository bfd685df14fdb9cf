"""C-scores against proportions counted by hand, and against `accuracy_out`, which one of them is."""

import numpy as np
from bool_trials import BOTH, make_trials, random_trials, unpacked

from memfluence.estimators import c_scores, memorization
from memfluence.records import Kind

SEVERAL = (Kind(0.3, None), Kind(0.6, None), Kind(0.9, None))


def test_one_fraction_is_accuracy_out():
    trials = random_trials(60, 12, 5)
    found = c_scores(trials, BOTH)
    expected = memorization(trials, BOTH)
    np.testing.assert_array_equal(found.value, expected.accuracy_out)
    np.testing.assert_array_equal(found.trials_out[0], expected.trials_out)


def test_several_fractions_count_alike():
    trials = random_trials(90, 12, 5, kinds=np.minimum(np.arange(90) % 4, 2))  # the last has twice the trials
    mask, right, _ = unpacked(trials)
    found = c_scores(trials, SEVERAL)
    assert found.keep == (0.3, 0.6, 0.9)
    for i in range(12):
        shares, variance = [], 0.0
        for kind in range(3):
            out = right[(trials.kinds == kind) & ~mask[:, i], i]
            shares.append(out.mean())
            shrunk = (out.sum() + 1) / (len(out) + 2)
            variance += shrunk * (1 - shrunk) / (len(out) + 2)
        np.testing.assert_allclose(found.accuracy_out[:, i], shares)
        np.testing.assert_allclose(found.value[i], np.mean(shares))
        np.testing.assert_allclose(found.stderr[i], np.sqrt(variance) / 3)


def test_errors_are_those_that_c_scores_have():
    """Three fractions at which the example is right with 30%, 60% and 95%: spread over worlds, and never 0."""
    rng = np.random.default_rng(0)
    kinds, chance = np.arange(300) % 3, np.array([0.3, 0.6, 0.95])
    values, errors = [], []
    for _ in range(300):
        right = rng.random((300, 10)) < chance[kinds][:, None]
        trials = make_trials(rng.random((300, 10)) < 0.5, np.zeros((300, 1)), right, kinds=kinds)
        found = c_scores(trials, SEVERAL)
        values.append(found.value)
        errors.append(found.stderr)
    assert abs(np.mean(values) - chance.mean()) < 4 * np.std(values) / np.sqrt(3000)
    assert 0.95 < np.mean(errors) / np.std(values) < 1.1
    always = make_trials(rng.random((30, 4)) < 0.5, np.zeros((30, 1)), np.ones((30, 4)))
    assert (c_scores(always, BOTH).stderr > 0).all()


def test_an_example_that_a_fraction_never_leaves_out_has_none():
    mask = np.random.default_rng(0).random((30, 4)) < 0.5
    kinds = np.arange(30) % 3
    mask[kinds == 2, 1] = True
    found = c_scores(make_trials(mask, np.zeros((30, 1)), mask, kinds=kinds), SEVERAL)
    assert np.isnan(found.value).tolist() == [False, True, False, False]
    assert np.isnan(found.stderr).tolist() == [False, True, False, False]
