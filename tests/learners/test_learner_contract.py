"""What every learner promises, whatever it is made from."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learner_worlds import N_TRAIN, clouds, noise, outcomes, random_trials, results, same_bits, trial_of
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from user_learners import Dropping, nearest_scores, torch_scores

import memfluence as mf
from memfluence.learners import MLP, Learner, resolve
from memfluence.learners.network import Network
from memfluence.learners.recipes import Recipe
from memfluence.records import Failure

USER_FILE = Path(__file__).parent / "user_learners.py"
LEARNERS = {
    "mlp": lambda: resolve("mlp", {"hidden": "16", "epochs": "40", "batch": "8", "rate": "0.05"}),
    "mlp with clipping and noise": lambda: resolve(
        "mlp", {"hidden": "16", "epochs": "40", "batch": "8", "rate": "0.05", "clip": "1", "noise": "0.3"}
    ),
    # A network without convolutions, for features; `test_network_learner` has one with them.
    "network": lambda: Network("linear", "linear", Recipe(epochs=20, batch=8, rate=0.05, normalization="subset")),
    "networks at once": lambda: Network(
        "linear", "linear", Recipe(epochs=20, batch=8, rate=0.05, normalization="subset"), group=4
    ),
    "logistic regression": lambda: resolve(LogisticRegression(max_iter=1000)),
    "forest": lambda: resolve(RandomForestClassifier(n_estimators=7)),
    "function": lambda: resolve(nearest_scores),
    "function in a file": lambda: resolve(f"{USER_FILE}:nearest_scores"),
    "estimator in a file": lambda: resolve(f"{USER_FILE}:nearest"),
    "function on a device": lambda: resolve(torch_scores),
    "function on a device, in a file": lambda: resolve(f"{USER_FILE}:torch_logits"),
    "module with a recipe": lambda: mf.network(Dropping, Recipe(epochs=20, batch=8, rate=0.05, normalization="subset")),
    "module in a file": lambda: resolve(
        f"{USER_FILE}:Dropping@mnist", {"width": "9", "normalization": "subset", "epochs": "10", "batch": "8"}
    ),
}


@pytest.fixture(params=LEARNERS)
def learner(request: pytest.FixtureRequest) -> Learner:
    return LEARNERS[request.param]()


def test_is_a_learner_with_a_json_identity(learner: Learner) -> None:
    assert isinstance(learner, Learner)
    assert learner.name.replace("@", "_").isidentifier()
    described = learner.describe()
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["name"] == learner.name
    assert learner.group_size(clouds(), "cpu") >= 1


def test_one_result_per_trial_in_order(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 28, 27, 20, 28])
    trials[2] = replace(trials[2], kind=1, number=70)
    found = outcomes(learner, data, trials)
    assert [(outcome.trial, outcome.kind) for outcome in found] == [(trial.number, trial.kind) for trial in trials]
    for outcome, trial in zip(found, trials):
        assert np.array_equal(outcome.mask, trial.mask)
        assert outcome.train_correct.shape == (data.n_train,)
        assert outcome.test_correct.shape == (data.n_test,)
        assert outcome.train_correct.dtype == outcome.test_correct.dtype == bool
        assert outcome.seconds >= 0
        assert outcome.device


def test_extras_agree_with_correctness(learner: Learner) -> None:
    data = clouds()
    for outcome in outcomes(learner, data, random_trials([28, 28])):
        for split, labels, correct in (
            ("train", data.y_train, outcome.train_correct),
            ("test", data.y_test, outcome.test_correct),
        ):
            assert np.array_equal(outcome.extras[f"{split}_prediction"] == labels, correct)
            margin, logit = outcome.extras[f"{split}_margin"], outcome.extras[f"{split}_logit"]
            assert margin.dtype == logit.dtype == np.float16
            assert np.isfinite(margin).all()
            assert np.isfinite(logit).all()
            assert (margin[correct] >= 0).all()
            assert (margin[~correct] <= 0).all()
            assert (logit <= margin).all()  # the others' sum is at least their largest


def test_recording_more_changes_nothing(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 25])
    for bare, full in zip(outcomes(learner, data, trials, record=()), outcomes(learner, data, trials)):
        assert not bare.extras
        assert np.array_equal(bare.train_correct, full.train_correct)
        assert np.array_equal(bare.test_correct, full.test_correct)


def test_margins_of_test_examples_alone(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 25])
    for alone, both in zip(outcomes(learner, data, trials, record=("test_margin",)), outcomes(learner, data, trials)):
        assert list(alone.extras) == ["test_margin"]
        assert np.array_equal(alone.extras["test_margin"], both.extras["test_margin"])


def test_same_bits_when_run_again(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 26, 28])
    for first, second in zip(outcomes(learner, data, trials), outcomes(learner, data, trials)):
        assert same_bits(first, second)


def test_a_pickled_learner_is_the_same_learner(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28])
    copy = pickle.loads(pickle.dumps(learner))
    assert copy.describe() == learner.describe()
    assert same_bits(outcomes(copy, data, trials)[0], outcomes(learner, data, trials)[0])


def test_a_trial_does_not_depend_on_its_group(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 21, 28, 9])
    for trial, together in zip(trials, outcomes(learner, data, trials)):
        (alone,) = outcomes(learner, data, [trial])
        assert np.array_equal(alone.extras["test_prediction"], together.extras["test_prediction"])
        for name in ("train_margin", "test_margin"):  # float16, so a last bit may differ
            np.testing.assert_allclose(alone.extras[name], together.extras[name], rtol=2e-3, atol=2e-3)


def test_nothing_of_a_held_out_example_reaches_the_model(learner: Learner) -> None:
    data, trials = clouds(), random_trials([28, 28, 27, 28])
    left_out = int(np.flatnonzero(~trials[0].mask)[0])
    without = [trial for trial in trials if not trial.mask[left_out]]
    x_train, y_train = data.x_train.copy(), data.y_train.copy()
    x_train[left_out] = 1e6
    y_train[left_out] = (y_train[left_out] + 1) % data.n_classes
    changed = replace(data, x_train=x_train, y_train=y_train)
    others = np.arange(N_TRAIN) != left_out
    before = {outcome.trial: outcome for outcome in outcomes(learner, data, trials)}
    after = {outcome.trial: outcome for outcome in outcomes(learner, changed, trials)}
    for trial in without:
        first, second = before[trial.number], after[trial.number]
        for name in first.extras:
            rows = others if name.startswith("train") else slice(None)
            assert first.extras[name][rows].tobytes() == second.extras[name][rows].tobytes()


@pytest.mark.parametrize("name", ["mlp", "function", "neighbours"])
def test_kept_noise_is_memorized_and_held_out_noise_is_not(name: str) -> None:
    learner = {
        "mlp": MLP(hidden=(64,), epochs=150, batch=16),
        "function": resolve(nearest_scores),
        "neighbours": resolve(KNeighborsClassifier(n_neighbors=1)),
    }[name]
    found = outcomes(learner, noise(), random_trials([56] * 6, n_train=80), record=())
    kept = np.mean([outcome.train_correct[outcome.mask].mean() for outcome in found])
    held_out = np.mean([outcome.train_correct[~outcome.mask].mean() for outcome in found])
    assert kept == 1
    assert held_out < 0.55  # chance is 1/3


def test_a_trial_that_keeps_nothing_fails_alone(learner: Learner) -> None:
    data, trials = clouds(), [*random_trials([28, 28]), trial_of(2, [])]
    trials = [trials[0], trials[2], trials[1]]
    found = results(learner, data, trials)
    assert isinstance(found[1], Failure)
    assert (found[1].trial, "keeps no example" in found[1].message) == (2, True)
    assert [result.trial for result in found] == [0, 2, 1]
    assert not isinstance(found[0], Failure)
    assert not isinstance(found[2], Failure)
    assert isinstance(results(learner, data, [trial_of(0, [])])[0], Failure)


def test_the_dataset_is_not_written_to(learner: Learner) -> None:
    data = clouds()
    before = data.x_train.tobytes(), data.x_test.tobytes()
    results(learner, data, random_trials([28]))
    assert (data.x_train.tobytes(), data.x_test.tobytes()) == before
