"""Outcomes that are not right or wrong: regressors, several labels, sequences, and scores of a learner's own."""

from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import N_TEST, N_TRAIN, arrays, clouds, outcomes, random_trials, results
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import EstimatorLearner, FunctionLearner, Learner, data_for, resolve
from memfluence.learners.mlp import MLP
from memfluence.records import Failure, Outcome

X_TRAIN, _, X_TEST, _ = arrays()
TRIALS = random_trials([28, 20])


def numbers(columns: int = 0, **options: Any) -> Dataset:
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(X_TRAIN.shape[1], columns or 1))
    y = [x @ weights + 0.3 * rng.normal(size=(len(x), columns or 1)) for x in (X_TRAIN, X_TEST)]
    y = y if columns else [one[:, 0] for one in y]
    return from_arrays(X_TRAIN, y[0], X_TEST, y[1], **options)


def labels() -> Dataset:
    return from_arrays(X_TRAIN, (X_TRAIN[:, :3] > 0).astype(int), X_TEST, (X_TEST[:, :3] > 0).astype(int))


def scores(learner: Learner, data: Dataset) -> Outcome:
    """The outcome of the first trial, which has scores and no bits."""
    first, _ = outcomes(learner, data, TRIALS, record=())
    assert first.has_scores
    assert not first.train_correct.any()
    assert not first.test_correct.any()
    assert {values.dtype.name for values in first.extras.values()} == {"float32"}
    return first


@pytest.mark.parametrize(
    ("how", "score"),
    [
        (None, lambda error: -abs(error)),
        ("absolute", lambda error: -abs(error)),
        ("squared", lambda error: -(error**2)),
        (lambda y, predicted: np.exp(-abs(y - predicted)), lambda error: np.exp(-abs(error))),
    ],
)
@pytest.mark.parametrize("estimator", [LinearRegression(), make_pipeline(StandardScaler(), Ridge())])
def test_a_regressor_is_scored_by_its_error(estimator: Any, how: Any, score: Any) -> None:
    data, kept = numbers(), TRIALS[0].kept
    found = scores(resolve(estimator, {} if how is None else {"outcome": how}), data)
    y = data.labels("train")
    model = estimator.fit(X_TRAIN[kept], y[kept])
    assert found.extras["train_score"] == pytest.approx(score(y - model.predict(X_TRAIN)), abs=1e-5)
    assert found.extras["test_score"] == pytest.approx(score(data.labels("test") - model.predict(X_TEST)), abs=1e-5)
    held_out = ~TRIALS[0].mask
    train, test = (found.extras[f"{split}_score"].astype(float) for split in ("train", "test"))
    assert found.means == pytest.approx((train[kept].mean(), train[held_out].mean(), test.mean()))


def test_several_numbers_an_example() -> None:
    data = numbers(columns=2)
    found = scores(EstimatorLearner(KNeighborsRegressor(1)), data)
    assert np.array_equal(found.extras["train_score"] == 0, TRIALS[0].mask)
    model = KNeighborsRegressor(1).fit(X_TRAIN[TRIALS[0].kept], data.labels("train")[TRIALS[0].kept])
    error = abs(model.predict(X_TEST) - data.labels("test")).mean(axis=1)
    assert found.extras["test_score"] == pytest.approx(-error, abs=1e-6)


@pytest.mark.parametrize(
    "estimator", [KNeighborsClassifier(3), RandomForestClassifier(5), MultiOutputClassifier(LogisticRegression())]
)
def test_several_labels(estimator: Any) -> None:
    data = labels()
    share = scores(EstimatorLearner(estimator), data).extras["test_score"]
    exact = scores(EstimatorLearner(estimator, outcome="exact"), data).extras["test_score"]
    assert set(np.round(3 * share, 4)) <= {0, 1, 2, 3}
    assert np.array_equal(exact, share == 1)
    assert share.mean() > 0.7


class Tagger:
    """Gives each word the tag that it had last; unknown words are nouns."""

    def fit(self, x: Any, y: Any) -> "Tagger":
        self.tags = {word: tag for words, tags in zip(x, y) for word, tag in zip(words, tags)}
        return self

    def predict(self, x: Any) -> list[list[str]]:
        return [[self.tags.get(word, "noun") for word in words] for words in x]


def sentences() -> Dataset:
    words = [["the", "cat"], ["a", "dog", "barks"], ["the", "dog"], ["she", "runs"]] * 10
    tags = [["det", "noun"], ["det", "noun", "verb"], ["det", "noun"], ["pron", "verb"]] * 10
    return from_arrays(
        words, tags, [["a", "cat", "runs"], ["he", "barks"]], [["det", "noun", "verb"], ["pron", "verb"]]
    )


def test_sequences_of_labels() -> None:
    assert sentences().task == "sequences"
    assert scores(EstimatorLearner(Tagger()), sentences()).extras["test_score"].tolist() == [1.0, 0.5]
    assert scores(EstimatorLearner(Tagger(), outcome="exact"), sentences()).extras["test_score"].tolist() == [1.0, 0.0]

    def train(x: Any, y: Any, seed: int) -> Any:
        return Tagger().fit(x, y).predict

    assert scores(FunctionLearner(train), sentences()).extras["test_score"].tolist() == [1.0, 0.5]


@pytest.mark.parametrize("data", [clouds(), numbers(), labels()], ids=["classes", "numbers", "labels"])
def test_a_function_with_a_score_of_its_own(data: Dataset) -> None:
    """It is called with all examples of a split and their targets, as they were written."""
    calls: list[tuple[Any, Any]] = []

    def train(x: Any, y: Any, seed: int) -> Any:
        assert np.array_equal(y, data.labels("train")[TRIALS[len(calls) // 2].kept])

        def score(x: Any, y: Any, scale: float = 2.0) -> Any:
            calls.append((x, y))
            return scale * x[:, 0]

        return score

    found = scores(FunctionLearner(train), data)
    assert np.array_equal(found.extras["train_score"], (2 * X_TRAIN[:, 0]).astype(np.float32))
    assert np.array_equal(calls[1][0], X_TEST)
    assert np.array_equal(calls[1][1], data.labels("test"))


def test_a_function_without_targets() -> None:
    """Texts have none: what a model finds likely is its own affair."""
    texts = ["to be or not to be", "that is the question"] * 20

    def train(x: Any, y: Any, seed: int) -> Any:
        assert y is None
        letters = set("".join(x))
        return lambda x, y: [np.mean([letter in letters for letter in text]) for text in x]

    found = scores(FunctionLearner(train), from_arrays(texts, None, ["to be", "xyz"], None))
    assert found.extras["test_score"].tolist() == [1.0, 0.0]
    with pytest.raises(LearnerError, match=r"has no labels, so train must return a function score\(x, y\)"):
        results(FunctionLearner(predicting), from_arrays(texts, None, texts, None), TRIALS, record=())


def predicting(x: Any, y: Any, seed: int) -> Any:
    return lambda x: np.zeros(len(x))


predicting.__name__ = "train"


@pytest.mark.parametrize("data", [clouds(), numbers(), labels()], ids=["classes", "numbers", "labels"])
def test_scores_in_torch(data: Dataset) -> None:
    """A module of two inputs is asked in blocks, with targets on its device: codes, float32 or integers."""

    class Loss(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return -((x[:, 0] - (y.float() if y.ndim == 1 else y.float().sum(1))) ** 2)

    def train(x: torch.Tensor, y: torch.Tensor, seed: int, device: str) -> Any:
        assert len(x) == len(y)
        return Loss()

    found = scores(FunctionLearner(train), data)
    y = data.y_test if data.task == "classes" else data.labels("test")
    expected = -((X_TEST[:, 0] - (y if y.ndim == 1 else y.sum(axis=1))) ** 2)
    assert found.extras["test_score"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda n: np.full(n, np.nan), "the score of train example 0 is NaN or infinite"),
        (lambda n: np.full(n, 1e300), "the score of train example 0 is NaN or infinite"),
        (lambda n: np.zeros((n, 2)), r"numbers of the shape \(40,\), one for each; got float64 of the shape \(40, 2\)"),
        (lambda n: np.full(n, "a"), "must be numbers of the shape"),
        (lambda n: 1.0, r"got float64 of the shape \(\)"),
    ],
)
def test_scores_that_cannot_be_used_fail_the_trial(values: Any, message: str) -> None:
    found = results(FunctionLearner(lambda x, y, seed: lambda x, y: values(len(x))), clouds(), TRIALS, record=())
    assert all(isinstance(one, Failure) for one in found)
    with pytest.raises(AssertionError, match=message):
        outcomes(FunctionLearner(lambda x, y, seed: lambda x, y: values(len(x))), clouds(), TRIALS, record=())


def test_predictions_that_do_not_fit_the_targets_fail_the_trial() -> None:
    def sentence(data: Dataset, predicted: Any) -> str:
        (first, _) = results(FunctionLearner(lambda x, y, seed: lambda x: predicted(len(x))), data, TRIALS, record=())
        assert isinstance(first, Failure)
        return first.message

    assert "shape (40, 2) for the train targets of the shape (40,)" in sentence(numbers(), lambda n: np.zeros((n, 2)))
    assert "it must return as many numbers" in sentence(labels(), lambda n: ["a"] * n)
    assert "whose sequence has 2" in sentence(sentences(), lambda n: [["noun"]] * n)
    assert "returned 1 sequences for the 40 train" in sentence(sentences(), lambda n: [["noun"]])


def test_what_is_recorded_is_the_score_alone() -> None:
    for learner, data in (
        (EstimatorLearner(Ridge()), numbers()),
        (FunctionLearner(lambda x, y, seed: lambda x, y: x[:, 0]), numbers()),
    ):
        with pytest.raises(LearnerError, match="margin"):
            results(learner, data, TRIALS, record=("margin",))


@pytest.mark.parametrize(
    "learner",
    [
        EstimatorLearner(KNeighborsRegressor(3)),
        EstimatorLearner(Ridge()),
        EstimatorLearner(make_pipeline(StandardScaler(), Ridge())),
    ],
)
def test_weights_reach_what_takes_them(learner: EstimatorLearner) -> None:
    """A weight of 0 is as if the example were not there."""
    weights = np.random.default_rng(0).integers(0, 2, N_TRAIN).astype(float)
    found = scores(learner, numbers(attributes={"train_sample_weight": weights}))
    plain = scores(learner, numbers())
    same = np.array_equal(found.extras["test_score"], plain.extras["test_score"])
    assert learner.takes_weights is not same
    if learner.takes_weights and isinstance(learner.estimator, Ridge):
        data, kept = numbers(), TRIALS[0].kept
        kept = kept[weights[kept] > 0]
        model = Ridge().fit(X_TRAIN[kept], data.labels("train")[kept])
        expected = -abs(model.predict(X_TEST) - data.labels("test"))
        assert found.extras["test_score"] == pytest.approx(expected, abs=1e-5)


def test_a_function_may_ask_for_weights() -> None:
    seen: list[Any] = []

    def train(x: Any, y: Any, seed: int, sample_weight: Any) -> Any:
        seen.append(sample_weight)
        return lambda x, y: np.zeros(len(x))

    weights = np.arange(N_TRAIN) + 1.0
    assert FunctionLearner(train).takes_weights
    scores(FunctionLearner(train), numbers(attributes={"train_sample_weight": weights}))
    assert np.array_equal(seen[0], weights[TRIALS[0].kept])
    scores(FunctionLearner(train), numbers())
    assert seen[-1] is None


def test_the_identity_knows_the_outcome() -> None:
    def scale(y: Any, predicted: Any) -> Any:
        return -abs(y - predicted) / 2

    found = [resolve(Ridge(), {"outcome": how}).describe() for how in ("absolute", "squared", scale)]
    plain = EstimatorLearner(Ridge()).describe()
    assert "outcome" not in plain
    assert len({str(one) for one in (*found, plain)}) == 4


def test_who_takes_which_data() -> None:
    forest, ridge = EstimatorLearner(RandomForestClassifier()), EstimatorLearner(Ridge())
    assert data_for(ridge, numbers()).task == "numbers"
    assert data_for(ridge, clouds()).labels("train").dtype == np.float64  # whole numbers are targets as well
    assert data_for(forest, labels()).task == "labels"
    for learner in (forest, MLP()):
        with pytest.raises(LearnerError, match=r"this looks like a regression .*: give a regressor"):
            data_for(learner, numbers())
    with pytest.raises(LearnerError, match="has several labels an example, and mlp takes none"):
        data_for(MLP(), labels())
    with pytest.raises(LearnerError, match=r"has no labels, and .* takes none: give a function"):
        data_for(forest, from_arrays(X_TRAIN, None, X_TEST, None))
    search = EstimatorLearner(GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}))
    assert search.tasks == ("numbers",)
    assert len(X_TEST) == N_TEST
