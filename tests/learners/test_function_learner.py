"""Functions train(x, y, seed) -> predict as learners."""

import functools
import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from learner_worlds import N_TEST, N_TRAIN, arrays, clouds, outcomes, random_trials, results, trial_of

from memfluence.datasets import from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import FunctionLearner
from memfluence.records import Failure

CALLS: list[tuple[Any, Any, int]] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def returning(make: Any) -> FunctionLearner:
    """A learner whose model returns make(number of inputs)."""

    def train(x: Any, y: Any, seed: int) -> Any:
        CALLS.append((x, y, seed))
        return lambda inputs: make(len(inputs))

    return FunctionLearner(train)


def logits(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 3))


def probabilities(n: int) -> np.ndarray:
    return np.exp(logits(n)) / np.exp(logits(n)).sum(axis=1, keepdims=True)


def test_is_given_the_kept_examples_their_labels_and_a_seed() -> None:
    x_train, y_train, x_test, y_test = arrays()
    names = np.array(["cat", "dog", "eel"])
    data = from_arrays(x_train[:, None], names[y_train], x_test[:, None], names[y_test])
    trials = random_trials([28, 9])
    outcomes(returning(lambda n: np.full(n, "dog")), data, trials, record=())
    for (x, y, seed), trial in zip(CALLS, trials):
        assert np.array_equal(x, data.x_train[trial.kept])  # in their own shape
        assert np.array_equal(y, names[y_train[trial.kept]])
        assert seed == trial.seed


@pytest.mark.parametrize(
    "convert",
    [np.asarray, list, pd.Series, torch.tensor, lambda codes: codes.astype(float), lambda codes: codes.astype(object)],
    ids=["array", "list", "series", "torch", "float", "object"],
)
def test_predicted_labels_in_any_container(convert: Any) -> None:
    learner = returning(lambda n: convert(np.arange(n) % 3))
    (outcome,) = outcomes(learner, clouds(), random_trials([28]), record=("prediction",))
    assert np.array_equal(outcome.extras["test_prediction"], np.arange(N_TEST) % 3)
    assert np.array_equal(outcome.train_correct, np.arange(N_TRAIN) % 3 == clouds().y_train)


def test_a_label_that_the_dataset_lacks_is_wrong() -> None:
    (outcome,) = outcomes(
        returning(lambda n: np.arange(n) % 3 + 2), clouds(), random_trials([28]), record=("prediction",)
    )
    predicted = np.arange(N_TRAIN) % 3 + 2
    assert np.array_equal(outcome.extras["train_prediction"], np.where(predicted == 2, 2, 3))
    assert not outcome.train_correct[predicted > 2].any()


@pytest.mark.parametrize(
    "convert",
    [np.asarray, torch.tensor, lambda x: torch.tensor(x).bfloat16(), pd.DataFrame, lambda x: x.tolist()],
    ids=["array", "torch", "bfloat16", "table", "lists"],
)
def test_scores_in_any_container(convert: Any) -> None:
    (outcome,) = outcomes(returning(lambda n: convert(logits(n))), clouds(), random_trials([28]))
    if convert is np.asarray:
        assert np.array_equal(outcome.extras["test_prediction"], logits(N_TEST).argmax(axis=1))
    assert np.isfinite(outcome.extras["test_margin"]).all()


def test_probabilities_and_their_logits_are_the_same_model() -> None:
    (from_logits,) = outcomes(returning(logits), clouds(), random_trials([28]))
    (from_probabilities,) = outcomes(returning(probabilities), clouds(), random_trials([28]))
    for name in from_logits.extras:
        np.testing.assert_allclose(from_logits.extras[name], from_probabilities.extras[name], rtol=2e-3, atol=2e-3)


def test_certain_probabilities_have_finite_odds() -> None:
    (outcome,) = outcomes(returning(lambda n: np.eye(3)[np.arange(n) % 3]), clouds(), random_trials([28]))
    assert set(np.round(np.abs(outcome.extras["test_margin"].astype(float)))) == {87.0}


def test_columns_may_follow_the_labels_it_was_given() -> None:
    data = clouds()
    kept = np.flatnonzero(data.y_train != 1)  # the subset lacks class 1
    (outcome,) = outcomes(
        returning(lambda n: np.tile([0.0, 5.0], (n, 1))), data, [trial_of(0, kept)], record=("prediction", "margin")
    )
    assert set(outcome.extras["test_prediction"]) == {2}
    assert (outcome.extras["test_margin"][data.y_test == 1] < -80).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda n: np.zeros(n - 1, int), r"shape \(39,\) for the 40 train inputs", id="too short"),
        pytest.param(lambda n: np.zeros((n, 3, 1)), r"shape \(40, 3, 1\)", id="three dimensions"),
        pytest.param(lambda n: 1, r"shape \(\)", id="a number"),
        pytest.param(lambda n: np.zeros((n, 4)), "4 columns for 3 classes", id="too many columns"),
        pytest.param(lambda n: np.zeros((n, 1)), "1 columns for 3 classes", id="one column"),
        pytest.param(lambda n: np.full((n, 3), np.nan), "must be numbers; some are NaN", id="NaN"),
        pytest.param(lambda n: np.full(n, 0.3), "labels like 0; got float64 values like 0.3", id="probability of one"),
        pytest.param(lambda n: np.full(n, "cat"), "labels like 0; got <U3 values like 'cat'", id="names for numbers"),
        pytest.param(lambda n: logits(n) if n == N_TRAIN else np.zeros(n), "labels for one split", id="mixed"),
        pytest.param(lambda n: 1 / 0, "ZeroDivisionError: division by zero", id="raises"),
    ],
)
def test_unusable_returns_fail_the_trial_with_a_reason(make: Any, message: str) -> None:
    found = results(returning(make), clouds(), random_trials([28, 28]), record=())
    assert len(found) == 2
    for result in found:
        assert isinstance(result, Failure)
        assert re.search(message, result.message), result.message
        assert "Traceback" in result.traceback


class Fitted:
    def predict(self, x: Any) -> Any:
        return x


def test_a_model_instead_of_its_predict_is_explained() -> None:
    found = results(FunctionLearner(lambda x, y, seed: Fitted()), clouds(), random_trials([28]), record=())
    assert isinstance(found[0], Failure)
    assert (
        "must return a function predict(x) or score(x, y); got an object of type Fitted; return its method"
        in found[0].message
    )


def test_margins_need_scores() -> None:
    with pytest.raises(LearnerError, match=r"predicted classes alone.*return scores"):
        results(returning(lambda n: np.zeros(n, int)), clouds(), random_trials([28]), record=("margin",))


def test_predict_may_write_into_its_inputs() -> None:
    def train(x: Any, y: Any, seed: int) -> Any:
        x *= 0

        def predict(inputs: Any) -> Any:
            inputs *= 0
            return np.zeros(len(inputs), int)

        return predict

    data = clouds()
    before = data.x_train.copy()
    outcomes(FunctionLearner(train), data, random_trials([28]), record=())
    assert np.array_equal(data.x_train, before)


@pytest.mark.parametrize("function", [lambda x, y: None, lambda: None, lambda x, y, seed, extra: None])
def test_other_signatures_are_refused(function: Any) -> None:
    with pytest.raises(LearnerError, match=r"called as train\(x, y, seed\), which .*\) does not allow"):
        FunctionLearner(function)


def scaled(scale: float, x: Any, y: Any, seed: int) -> Any:
    return lambda inputs: np.zeros(len(inputs), int)


def test_names_and_identities() -> None:
    assert FunctionLearner(lambda x, y, seed: None).name == "lambda"
    halves = FunctionLearner(functools.partial(scaled, 0.5))
    assert halves.name == "scaled"
    assert halves.describe() == FunctionLearner(functools.partial(scaled, 0.5)).describe()
    assert halves.describe() != FunctionLearner(functools.partial(scaled, 0.7)).describe()
    assert returning(logits).describe() != returning(probabilities).describe()


def test_a_learner_that_ends_the_program_fails_its_trial_alone() -> None:
    def train(x: Any, y: Any, seed: int) -> Any:
        CALLS.append((x, y, seed))
        if len(CALLS) == 1:
            sys.exit(3)
        return lambda inputs: np.zeros(len(inputs), int)

    failed, done = results(FunctionLearner(train), clouds(), random_trials([28, 28]), record=())
    assert isinstance(failed, Failure)
    assert failed.message.startswith("SystemExit: 3; the learner's code ended the program")
    assert "sys.exit(3)" in failed.traceback
    assert not isinstance(done, Failure)


def test_what_engines_raise_to_stop_is_no_failure() -> None:
    class Stop(KeyboardInterrupt):
        pass

    def train(x: Any, y: Any, seed: int) -> Any:
        raise Stop

    with pytest.raises(Stop):
        results(FunctionLearner(train), clouds(), random_trials([28]), record=())


def test_functions_without_source_are_told_apart_by_their_code() -> None:
    made: dict[str, Any] = {}
    exec("def a(x, y, seed): return lambda inputs: inputs[:, 0] > 1\ndef b(x, y, seed): return None", made)
    made["b"].__qualname__ = "a"
    assert FunctionLearner(made["a"]).describe()["function"] != FunctionLearner(made["b"]).describe()["function"]
