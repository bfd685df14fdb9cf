"""Datamodels recover a planted linear model, equal scikit-learn's lasso, and are judged on trials they never saw."""

import numpy as np
import pytest
from bool_trials import make_trials
from sklearn.linear_model import Lasso

from memfluence.errors import InputError
from memfluence.estimators import datamodels

TRIALS, N_TRAIN, MODELS = 600, 80, 4


def planted(noise, *, trials=TRIALS, repeats=1, seed=0):
    """Each test example hangs on five training examples; (trials, outcomes, weights, intercept)."""
    rng = np.random.default_rng(seed)
    weights = np.zeros((N_TRAIN, MODELS))
    for column in weights.T:
        column[rng.choice(N_TRAIN, 5, replace=False)] = rng.choice([-1, 1], 5) * rng.uniform(0.5, 2.0, 5)
    mask = np.repeat(rng.random((trials // repeats, N_TRAIN)) < 0.7, repeats, axis=0)
    outcome = 1.5 + mask @ weights + rng.normal(scale=noise, size=(trials, MODELS))
    return make_trials(mask, np.zeros((trials, MODELS)), repeats=repeats), outcome, weights, mask


def test_a_planted_linear_model_is_recovered():
    trials, outcome, weights, mask = planted(0.2)
    found = datamodels(trials, outcome, np.arange(MODELS))
    assert np.abs(found.weights - weights).max() < 0.1
    for k in range(MODELS):  # the five come first, with their signs
        top = np.argsort(-np.abs(found.weights[:, k]))[:5]
        assert set(top) == set(np.flatnonzero(weights[:, k]))
        assert (np.sign(found.weights[top, k]) == np.sign(weights[top, k])).all()
    assert (found.correlation > 0.95).all()
    assert (found.trials, found.trials_held_out) == (480, 120)
    np.testing.assert_allclose(found.predict(mask), 1.5 + mask @ weights, atol=0.5)


def test_equals_the_lasso_of_scikit_learn():
    trials, outcome, _, mask = planted(0.5)
    found = datamodels(trials, outcome, np.arange(MODELS))
    fitted = np.arange(TRIALS) % 5 != 4
    for k in range(MODELS):
        expected = Lasso(alpha=found.alpha[k], tol=1e-8, max_iter=10_000).fit(mask[fitted], outcome[fitted, k])
        np.testing.assert_allclose(found.weights[:, k], expected.coef_, atol=2e-3)
        np.testing.assert_allclose(found.intercept[k], expected.intercept_, atol=2e-3)
        held_out = np.corrcoef(found.predict(mask[~fitted])[:, k], outcome[~fitted, k])[0, 1]
        assert found.correlation[k] == pytest.approx(held_out)


def test_more_examples_than_trials():
    """The other way of computing it, without products of all pairs."""
    trials, outcome, weights, mask = planted(0.2, trials=90)
    found = datamodels(trials, outcome, np.arange(MODELS))
    fitted = np.arange(90) % 5 != 4
    assert fitted.sum() < N_TRAIN
    for k in range(MODELS):
        expected = Lasso(alpha=found.alpha[k], tol=1e-8, max_iter=50_000).fit(mask[fitted], outcome[fitted, k])
        np.testing.assert_allclose(found.weights[:, k], expected.coef_, atol=5e-3)
    assert np.mean([np.corrcoef(found.weights[:, k], weights[:, k])[0, 1] for k in range(MODELS)]) > 0.8


def test_chance_alone_is_not_predicted():
    trials, outcome, _, _ = planted(0.2)
    noise = np.random.default_rng(1).normal(size=outcome.shape)
    found = datamodels(trials, noise, np.arange(MODELS))
    known = found.correlation[np.isfinite(found.correlation)]  # no weights at all predict nothing
    assert (np.abs(known) < 4 / np.sqrt(120)).all()


def test_models_of_one_mask_are_on_one_side():
    """Outcomes that hang on the mask by chance: predictable for whoever has seen another model of the mask."""
    rng = np.random.default_rng(0)
    trials, _, _, _ = planted(0.0, repeats=6)
    chance = np.repeat(rng.normal(size=(100, MODELS)), 6, axis=0)
    found = datamodels(trials, chance, np.arange(MODELS))
    known = found.correlation[np.isfinite(found.correlation)]
    assert (np.abs(known) < 4 / np.sqrt(20)).all()
    assert found.trials_held_out == 120


def test_outcomes_that_never_vary_have_no_datamodel():
    trials, outcome, _, _ = planted(0.2)
    outcome[:, 2] = 1.0
    found = datamodels(trials, outcome, np.arange(MODELS))
    assert (found.weights[:, 2] == 0).all()
    assert found.intercept[2] == 1.0
    assert np.isnan(found.correlation[2])


def test_what_cannot_be_fitted_is_refused():
    trials, outcome, _, _ = planted(0.2, trials=20)
    with pytest.raises(InputError, match="at least 25 masks, and there are 20"):
        datamodels(trials, outcome, np.arange(MODELS))
    with pytest.raises(InputError, match="finite outcomes"):
        datamodels(trials, outcome * np.inf, np.arange(MODELS))
    with pytest.raises(InputError, match="finite outcomes"):
        datamodels(trials, outcome[:, :2], np.arange(MODELS))
