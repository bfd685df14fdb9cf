"""scikit-learn classifiers and pipelines as learners."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from learner_worlds import arrays, clouds, outcomes, random_trials, results, trial_of
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from user_learners import Meant, text_model

from memfluence.datasets import from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import EstimatorLearner
from memfluence.learners import outcomes as outcomes_module
from memfluence.learners.outcomes import LOWEST_LOG_PROBABILITY
from memfluence.records import Failure


class Recorder(ClassifierMixin, BaseEstimator):
    """Predicts the first label it saw and remembers what it was given."""

    fits: list[dict[str, Any]] = []  # noqa: RUF012  (clones share it)

    def __init__(self, random_state: int | None = None, fails_at: int = -1) -> None:
        self.random_state = random_state
        self.fails_at = fails_at

    def fit(self, x: Any, y: Any) -> "Recorder":
        Recorder.fits.append({"x": x, "y": y, "random_state": self.random_state})
        if len(Recorder.fits) - 1 == self.fails_at:
            raise ValueError("no luck today")
        self.classes_ = np.unique(y)
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.classes_[0])


@pytest.fixture(autouse=True)
def no_fits() -> None:
    Recorder.fits.clear()


def test_fits_the_kept_examples_with_their_own_labels() -> None:
    x_train, y_train, x_test, y_test = arrays()
    names = np.array(["cat", "dog", "eel"])
    data = from_arrays(x_train, names[y_train], x_test, names[y_test])
    trials = random_trials([28, 11])
    outcomes(EstimatorLearner(Recorder()), data, trials, record=("prediction",))
    for fit, trial in zip(Recorder.fits, trials):
        assert np.array_equal(fit["x"], x_train[trial.kept])
        assert np.array_equal(fit["y"], names[y_train][trial.kept])


def test_every_random_state_is_the_trials_own_even_a_fixed_one() -> None:
    data, trials = clouds(), random_trials([28, 28])
    for _ in range(2):
        outcomes(EstimatorLearner(Recorder(random_state=0)), data, trials, record=())
    states = [fit["random_state"] for fit in Recorder.fits]
    assert states[:2] == states[2:]
    assert len({0, *states}) == 3


def test_nested_random_states_are_set_too() -> None:
    data, trials = clouds(), random_trials([28, 28, 28])
    pipeline = make_pipeline(
        PCA(3, svd_solver="randomized", random_state=0), BaggingClassifier(Recorder(random_state=0), n_estimators=1)
    )
    outcomes(EstimatorLearner(pipeline), data, trials, record=())
    assert len({fit["random_state"] for fit in Recorder.fits}) == 3


def test_the_same_seed_gives_the_same_forest_and_another_trial_another() -> None:
    data = clouds()
    learner = EstimatorLearner(RandomForestClassifier(n_estimators=3, random_state=0))
    kept = range(28)
    first, second = outcomes(learner, data, [trial_of(0, kept), trial_of(1, kept)])
    assert not np.array_equal(first.extras["test_margin"], second.extras["test_margin"])


def test_the_users_estimator_is_not_touched() -> None:
    estimator = KNeighborsClassifier()
    outcomes(EstimatorLearner(estimator), clouds(), random_trials([28]))
    assert not hasattr(estimator, "classes_")


def test_a_trial_that_raises_fails_alone() -> None:
    found = results(EstimatorLearner(Recorder(fails_at=1)), clouds(), random_trials([28, 28, 28]), record=())
    assert [isinstance(result, Failure) for result in found] == [False, True, False]
    assert isinstance(found[1], Failure)
    assert found[1].message == "ValueError: no luck today"
    assert "in fit" in found[1].traceback


def test_interrupts_are_not_failures() -> None:
    class Interrupted(Recorder):
        def fit(self, x: Any, y: Any) -> "Interrupted":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results(EstimatorLearner(Interrupted()), clouds(), random_trials([28]), record=())


def test_text_pipeline_on_lists_of_strings() -> None:
    kinds = {
        "sport": ["ball game team", "goal match ball", "team win match"],
        "food": ["soup bread", "bread cheese oven"],
    }
    texts = [f"{text} number{k}" for k in range(4) for label in kinds for text in kinds[label]]
    labels = [label for _ in range(4) for label in kinds for _ in kinds[label]]
    data = from_arrays(texts, labels, texts[:5], labels[:5])
    found = outcomes(EstimatorLearner(text_model), data, random_trials([14, 14], n_train=20))
    assert all(outcome.test_correct.all() for outcome in found)
    assert all((outcome.extras["test_margin"] > 0).all() for outcome in found)


def test_sparse_tables_and_images() -> None:
    x_train, y_train, x_test, y_test = arrays()
    expected = outcomes(EstimatorLearner(LogisticRegression()), clouds(), random_trials([28]))[0]
    for convert in (scipy.sparse.csr_matrix, lambda x: x[:, :, None], lambda x: x[:, None, :, None]):
        data = from_arrays(convert(x_train), y_train, convert(x_test), y_test)
        found = outcomes(EstimatorLearner(LogisticRegression()), data, random_trials([28]))[0]
        assert np.array_equal(found.test_correct, expected.test_correct)


def test_fit_and_predict_without_scikit_learns_conventions() -> None:
    learner = EstimatorLearner(Meant())
    found = outcomes(learner, clouds(), random_trials([28]), record=("prediction",))
    assert found[0].train_correct.mean() > 0.5
    with pytest.raises(LearnerError, match=r"Meant has none of predict_log_proba.*`record`"):
        results(learner, clouds(), random_trials([28]), record=("margin",))


def test_a_pipeline_that_scales_in_place_does_not_spoil_the_data() -> None:
    data = clouds()
    before = data.x_train.copy()
    outcomes(
        EstimatorLearner(make_pipeline(StandardScaler(copy=False), LogisticRegression())), data, random_trials([28])
    )
    assert np.array_equal(data.x_train, before)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        SVC(),
        LinearSVC(),
        SGDClassifier(),
        DecisionTreeClassifier(),
        CalibratedClassifierCV(LinearSVC(), cv=2),
        make_pipeline(StandardScaler(), SVC()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_margins_have_the_sign_of_correctness(estimator: Any, n_classes: int) -> None:
    x_train, y_train, x_test, y_test = arrays()
    data = from_arrays(x_train, y_train % n_classes, x_test, y_test % n_classes)
    (outcome,) = outcomes(EstimatorLearner(estimator), data, random_trials([28]))
    for split in ("train", "test"):
        margin = outcome.extras[f"{split}_margin"]
        correct = outcome.train_correct if split == "train" else outcome.test_correct
        assert (margin[correct] >= 0).all()
        assert (margin[~correct] <= 0).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logit_is_that_of_the_models_probability(n_classes: int) -> None:
    x_train, y_train, x_test, y_test = arrays()
    data, trials = from_arrays(x_train, y_train % n_classes, x_test, y_test % n_classes), random_trials([28])
    (outcome,) = outcomes(EstimatorLearner(LogisticRegression()), data, trials)
    kept = trials[0].kept
    model = LogisticRegression().fit(x_train[kept], data.y_train[kept])
    own = model.predict_proba(x_test)[np.arange(data.n_test), data.y_test]
    np.testing.assert_allclose(outcome.extras["test_logit"], np.log(own / (1 - own)), rtol=5e-3, atol=5e-3)
    decision = model.decision_function(x_test)
    if n_classes == 2:
        signed = np.where(data.y_test == 1, decision, -decision)
        np.testing.assert_allclose(outcome.extras["test_margin"], signed, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), LinearSVC(), RandomForestClassifier(5), DecisionTreeClassifier()]
)
@pytest.mark.parametrize("seen", [2, 3])
def test_classes_missing_from_the_subset_are_far_below(estimator: Any, seen: int) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    x = rng.normal(size=(40, 3)) + 3 * np.eye(4)[y][:, :3]
    data = from_arrays(x, y, x, y)
    (outcome,) = outcomes(EstimatorLearner(estimator), data, [trial_of(0, np.flatnonzero(y < seen), 40)])
    assert not outcome.test_correct[y >= seen].any()
    margin = outcome.extras["test_margin"].astype(float)
    assert (margin[y >= seen] <= LOWEST_LOG_PROBABILITY + 0.1).all()
    assert (margin > -1000).all()  # no infinity was clipped into a mean
    assert np.isfinite(outcome.extras["test_logit"]).all()


def test_one_against_one_decisions_are_refused() -> None:
    found = results(
        EstimatorLearner(SVC(decision_function_shape="ovo")), clouds(), random_trials([28]), record=("margin",)
    )
    assert isinstance(found[0], Failure)
    assert "decision_function_shape='ovr'" in found[0].message


def test_convergence_warnings_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "_shown", set())
    stubborn = EstimatorLearner(LogisticRegression(max_iter=1, C=1e6))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        outcomes(stubborn, clouds(), random_trials([28] * 4))
    assert [warning.category for warning in caught] == [ConvergenceWarning]


def test_warnings_that_the_user_makes_errors_fail_the_trial() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        found = results(
            EstimatorLearner(LogisticRegression(max_iter=1, C=1e6)), clouds(), random_trials([28]), record=()
        )
    assert isinstance(found[0], Failure)
    assert found[0].message.startswith("ConvergenceWarning: ")


def double(x: Any) -> Any:
    return 2 * x


def halve(x: Any) -> Any:
    return x / 2


def test_identity_is_the_class_and_its_parameters_without_random_states() -> None:
    def identity(estimator: Any) -> dict[str, Any]:
        return EstimatorLearner(estimator).describe()

    assert identity(SVC(C=2.0)) == identity(SVC(C=2.0))
    assert identity(SVC(C=2.0)) != identity(SVC(C=3.0))
    assert identity(SVC(random_state=1)) == identity(SVC(random_state=2)) == identity(SVC())
    assert identity(SVC()) != identity(LinearSVC())
    assert identity(make_pipeline(PCA(2), SVC())) != identity(make_pipeline(PCA(3), SVC()))
    assert identity(make_pipeline(PCA(random_state=1), SVC())) == identity(make_pipeline(PCA(random_state=2), SVC()))
    with_function = [make_pipeline(FunctionTransformer(function), SVC()) for function in (double, double, halve)]
    assert identity(with_function[0]) == identity(with_function[1]) != identity(with_function[2])
    weights = [LogisticRegression(class_weight={0: 1.0, 1: weight}) for weight in (1.0, 2.0)]
    assert identity(weights[0]) != identity(weights[1])
    assert identity(KMeans(init=np.zeros((8, 2)))) != identity(KMeans(init=np.ones((8, 2))))


def texts_in_a_table() -> Any:
    table = pd.DataFrame({"n": np.arange(20.0), "words": ["good fine", "bad awful"] * 10})
    return from_arrays(table, np.arange(20) % 2, table, np.arange(20) % 2)


def test_texts_in_a_table_are_told_of_before_a_vectorizer_takes_its_columns() -> None:
    data = texts_in_a_table()
    learner = EstimatorLearner(make_pipeline(make_pipeline(TfidfVectorizer()), LogisticRegression()))
    with pytest.raises(
        LearnerError, match=r"begins with TfidfVectorizer, which .*csv:FILE\?text=words, .*x\['words'\]"
    ):
        list(learner.train(data, [trial_of(0, np.arange(14), 20)], record=(), device="cpu"))
    alone = from_arrays(data.x_train["words"], data.y_train, data.x_test["words"], data.y_test)
    (outcome,) = learner.train(alone, [trial_of(0, np.arange(14), 20)], record=(), device="cpu")
    assert not isinstance(outcome, Failure)


def test_texts_among_numbers_are_told_of() -> None:
    data = texts_in_a_table()
    (failure,) = EstimatorLearner(LogisticRegression()).train(
        data, [trial_of(0, np.arange(14), 20)], record=(), device="cpu"
    )
    assert isinstance(failure, Failure)
    assert "could not convert string to float" in failure.message
    assert "a Series (x['words']), or a pipeline that encodes them" in failure.summary


def test_margins_of_bagging_are_the_same_from_processes_of_its_own() -> None:
    data, trials = clouds(), random_trials([28, 28])
    ways = [
        outcomes(
            EstimatorLearner(make_pipeline(StandardScaler(), BaggingClassifier(n_estimators=3, n_jobs=jobs))),
            data,
            trials,
            record=("margin",),
        )
        for jobs in (None, 2)
    ]
    for alone, shared in zip(*ways):
        assert np.array_equal(alone.test_correct, shared.test_correct)
        np.testing.assert_allclose(alone.extras["test_margin"], shared.extras["test_margin"], rtol=1e-3, atol=1e-3)
