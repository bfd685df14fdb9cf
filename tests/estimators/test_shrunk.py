"""Shrinkage: its closed form, a planted mixture, and what it does to all pairs and to the strong ones."""

import numpy as np
from bool_trials import BOTH, make_trials, random_trials

from memfluence.estimators import influence, shrunk_influence
from memfluence.estimators.shrunk import SCALES, prior_weights, shrink


def test_one_component_is_the_textbooks_normal_normal():
    value, stderr = np.array([0.3, -0.1, 0.0]), np.array([0.1, 0.05, 0.2])
    for k, scale in enumerate(SCALES):
        mean, deviation = shrink(value, stderr, np.eye(len(SCALES))[k])
        factor = scale**2 / (scale**2 + stderr**2)
        np.testing.assert_allclose(mean, factor * value, atol=1e-15)
        np.testing.assert_allclose(deviation, np.sqrt(factor) * stderr, atol=1e-9)


def planted(seed, pairs=40_000):
    """One pair in ten has an influence of standard deviation 0.1; the rest have none."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(pairs) < 0.1, 0.1 * rng.standard_normal(pairs), 0.0)
    stderr = rng.uniform(0.02, 0.05, pairs)
    return truth, truth + stderr * rng.standard_normal(pairs), stderr


def test_a_planted_mixture_is_found_and_used():
    truth, value, stderr = planted(0)
    weights = prior_weights(value, stderr)
    assert np.isclose(weights.sum(), 1)
    assert np.isclose((weights * SCALES**2).sum(), 0.1 * 0.1**2, rtol=0.1)
    mean, deviation = shrink(value, stderr, weights)
    oracle_factor = 0.1**2 / (0.1**2 + stderr**2)
    density = [np.exp(-(value**2) / 2 / v) / np.sqrt(v) for v in (stderr**2, stderr**2 + 0.1**2)]
    oracle = 0.1 * density[1] / (0.9 * density[0] + 0.1 * density[1]) * oracle_factor * value
    errors = [np.mean((found - truth) ** 2) for found in (value, mean, oracle)]
    assert errors[1] < 0.35 * errors[0]
    assert errors[1] < 1.02 * errors[2]  # as good as knowing the mixture
    strong = np.abs(truth) > 0.1
    assert np.mean((mean - truth)[strong] * np.sign(truth[strong])) < 0  # and each strong one is pulled towards 0
    assert np.mean(np.abs(mean - truth) <= 1.96 * deviation + 1e-12) > 0.94


def test_nothing_to_learn_from_is_no_influence():
    weights = prior_weights(np.empty(0), np.empty(0))
    np.testing.assert_array_equal(shrink(np.array([0.3]), np.array([0.1]), weights)[0], [0.0])


def test_the_matrix_is_the_plain_one_shrunk():
    trials = random_trials(120, 40, 12)
    labels = np.arange(40) % 2, np.arange(12) % 2
    estimates = shrunk_influence(trials, BOTH, *labels)
    plain, found = influence(trials, BOTH).block(), estimates.block_with_errors()
    np.testing.assert_allclose(estimates.block(), found.value)
    np.testing.assert_allclose(estimates.block([5, 2], [7]), found.value[[5, 2], 7:8])
    assert (np.abs(found.value) <= np.abs(plain)).all()
    assert (np.sign(found.value) * np.sign(plain) >= 0).all()
    assert (found.stderr >= 0).all()


def test_what_trials_cannot_say_is_nan():
    mask = np.random.default_rng(0).random((50, 6)) < 0.5
    mask[:, 0] = True
    found = shrunk_influence(make_trials(mask, mask[:, :3]), BOTH, np.zeros(6, int), np.zeros(3, int)).block()
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), np.arange(6) == 0)
    assert np.isfinite(found[1:]).all()
