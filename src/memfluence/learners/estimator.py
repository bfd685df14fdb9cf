"""`EstimatorLearner`: any scikit-learn classifier, regressor or pipeline as a learner."""

import copy
import inspect
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, Task
from memfluence.errors import LearnerError
from memfluence.learners.identity import identity
from memfluence.learners.outcomes import (
    LOWEST_LOG_PROBABILITY,
    SCORES,
    HowToScore,
    UnusableReturnError,
    as_array,
    class_codes,
    log_of,
    needs_scores,
    one_by_one,
    outcome_from,
    private_copy,
    score_extras,
    scored,
    scores_of,
    spread_columns,
)
from memfluence.records import GIVEN, Failure, Outcome, Trial

_SCORERS = ("predict_log_proba", "predict_proba", "decision_function")  # the first that a model has gives its scores


@dataclass(frozen=True)
class EstimatorLearner:
    """Fits a fresh clone of a scikit-learn classifier, regressor or pipeline on each trial's kept examples.

    Inputs come in the type of the dataset's (tables, sparse matrices, lists of strings); arrays of more than two
    dimensions, such as images, are flattened to one row per example. Labels come as they were written.

    Every `random_state` parameter, those of a pipeline's steps too, gets a seed of the trial's own, also where it was
    fixed to a number: memorization is defined over the algorithm's randomness, and a fixed number would freeze it.

    Correctness comes from `predict`. Margins and log-odds come from `predict_log_proba`, `predict_proba` or
    `decision_function`, whichever there is first (log-odds of a decision function are those of its softmax); a class
    that is missing from the subset stands far below the others. An exception fails its trial alone.

    Where targets are numbers, several labels or sequences, the outcome is a score of each example, higher is better, by
    `outcome`: "absolute" (minus the absolute error, the default) or "squared" for numbers; the "share" that is right
    (the default) or "exact" (1 if all is) for labels and sequences; or a function of (targets, predicted) that gives
    (n,) scores. The weights of the data (`train_sample_weight`) are passed to `fit` where that takes `sample_weight`.

    A run goes on with the same class and parameters alone. A class of your own counts by its compiled code; all that
    `FunctionLearner` says about code and values holds for it and for parameters.
    """

    estimator: Any
    covered: str | None = None  # a module whose source is part of the identity already
    outcome: HowToScore = None

    def __post_init__(self) -> None:
        known = {name: said for task in self.tasks for name, said in SCORES.get(task, {}).items()}
        if isinstance(self.outcome, str) and self.outcome not in known:
            choices = ", ".join(f"{name} ({said})" for name, said in known.items())
            raise LearnerError(
                f"the setting 'outcome' of {self.name} must be one of {choices}, or a function of (targets, predicted);"
                f" got {self.outcome!r:.60}."
            )

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be trained for, by what scikit-learn says it is."""
        if _is_kind("regressor", self.estimator):
            return ("numbers",)
        own: tuple[Task, ...] = ("classes", "labels", "sequences")
        return own if _is_kind("classifier", self.estimator) else (*own, "numbers")

    @property
    def takes_weights(self) -> bool:
        return bool(_weight_parameter(self.estimator))

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    @property
    def text(self) -> str:
        """The estimator on one line, as scikit-learn writes it: with the parameters that are not its defaults."""
        try:
            text = self.estimator.__repr__(N_CHAR_MAX=1_000_000)  # unless told so it leaves out the middle
        except Exception:  # another class's, which may hold an address, or which raises what it likes
            return ""
        return " ".join(str(text).split())

    def describe(self) -> dict[str, Any]:
        """The class and its parameters without the random states, which every trial sets itself."""
        estimator = _unfitted(self.estimator)
        states = _random_states(estimator)
        if states:
            estimator.set_params(**dict.fromkeys(states, 0))
        found = {"name": self.name, "kind": "estimator", **identity("estimator", estimator, self.covered)}
        if callable(self.outcome):
            return identity("outcome", self.outcome, self.covered) | found
        return found if self.outcome is None else {**found, "outcome": self.outcome}

    def group_size(self, dataset: Dataset, device: str) -> int:
        return 1

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        if needs_scores(record) and not _scorer(self.estimator):
            raise LearnerError(
                f"{self.name} has none of {', '.join(_SCORERS)}, so margins and log-odds cannot be recorded;"
                " use another estimator or leave them out of `record`."
            )
        if (first := _vectorizer(self.estimator)) and hasattr(dataset.x_train, "columns"):
            raise LearnerError(
                f"{self.name} begins with {first}, which takes texts and no table. Give {_texts_of(dataset.x_train)}."
            )
        ways = SCORES.get(dataset.task, {})
        if self.outcome is not None and not (ways and (callable(self.outcome) or self.outcome in ways)):
            what = (
                f"choose from {', '.join(ways)}"
                if ways
                else "of classes the outcome is right and wrong, so leave it out"
            )
            raise LearnerError(
                f"the setting 'outcome' of {self.name} says how predictions of {dataset.name} (task {dataset.task}) are"
                f" scored: {what}."
            )
        labels = dataset.labels("train")
        return one_by_one(trials, lambda trial: self._outcome(dataset, labels, trial, record))

    def _outcome(self, dataset: Dataset, labels: np.ndarray, trial: Trial, record: Collection[str]) -> Outcome:
        started = time.perf_counter()
        model = _unfitted(self.estimator)
        if states := _random_states(model):
            seeds = np.random.default_rng(trial.seed).integers(2**31, size=len(states))
            model.set_params(**dict(zip(states, seeds.tolist())))
        weights, weighted = dataset.sample_weight, _weight_parameter(model)
        options = {weighted: np.asarray(weights)[trial.kept]} if weighted and weights is not None else {}
        try:
            model.fit(_as_table(dataset.take_train(trial.kept)), labels[trial.kept], **options)
        except ValueError as error:
            if "could not convert string to float" not in str(error) or not hasattr(dataset.x_train, "columns"):
                raise
            raise ValueError(f"{error} (give {_texts_of(dataset.x_train)})") from error
        splits = [_as_table(private_copy(inputs)) for inputs in (dataset.x_train, dataset.x_test)]
        if dataset.task != "classes":
            train = scores_of(dataset, self.outcome, "train", model.predict(splits[0]))
            test = scores_of(dataset, self.outcome, "test", model.predict(splits[1]))
            seconds = time.perf_counter() - started
            return scored(trial, dataset, train, test, record=record, seconds=seconds, device="cpu")
        codes = [class_codes(as_array(model.predict(inputs)), dataset) for inputs in splits]
        extras = {}
        try:
            if needs_scores(record) or (GIVEN in record and _scorer(model)):
                scores = [_scores(model, inputs, dataset) for inputs in splits]
                extras = score_extras(dataset, scores[0], scores[1], record)
        except Exception:
            if needs_scores(record):
                raise  # otherwise nobody asked for them
        seconds = time.perf_counter() - started
        return outcome_from(trial, dataset, *codes, record=record, extras=extras, seconds=seconds, device="cpu")


def _unfitted(estimator: Any) -> Any:
    if not hasattr(estimator, "get_params"):
        return copy.deepcopy(estimator)  # fit and predict without scikit-learn's conventions
    from sklearn.base import clone

    return clone(estimator)


def _random_states(estimator: Any) -> list[str]:
    """The names of all random_state parameters, nested ones too, in alphabetical order."""
    if not hasattr(estimator, "get_params"):
        return []
    names = estimator.get_params(deep=True)
    return sorted(name for name in names if name == "random_state" or name.endswith("__random_state"))


def _is_kind(kind: str, estimator: Any) -> bool:
    """Whether an estimator is a "classifier" or a "regressor", as far as it says."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return getattr(estimator, "_estimator_type", None) == kind
    from sklearn import base

    return bool(getattr(base, f"is_{kind}")(estimator))


def _weight_parameter(estimator: Any) -> str:
    """The name by which `fit` takes weights of examples, in a pipeline for its last step; empty where it does not."""
    if steps := getattr(estimator, "steps", None):
        name, last = steps[-1]
        inner = _weight_parameter(last)
        return inner and f"{name}__{inner}"
    try:
        return "sample_weight" if "sample_weight" in inspect.signature(estimator.fit).parameters else ""
    except (TypeError, ValueError):
        return ""


def _vectorizer(estimator: Any) -> str | None:
    """The name of the vectorizer of texts that an estimator is, or that a pipeline begins with."""
    while steps := getattr(estimator, "steps", None):
        estimator = steps[0][1]
    texts = sys.modules.get("sklearn.feature_extraction.text")  # not there: none of its classes is in use
    takes_texts = texts and isinstance(estimator, texts.CountVectorizer | texts.HashingVectorizer)
    return type(estimator).__name__ if takes_texts else None


def _texts_of(table: Any) -> str:
    """How to give the first column of texts to a learner of texts."""
    columns = [str(name) for name, kind in zip(table.columns, table.dtypes) if kind.kind == "O"] or ["COLUMN"]
    return (
        f"the table's texts: csv:FILE?text={columns[0]}, a Series (x[{columns[0]!r}]), or a pipeline that encodes them"
    )


def _as_table(inputs: Any) -> Any:
    """Images and other arrays of more than two dimensions as one row per example; all else as it is."""
    return inputs.reshape(len(inputs), -1) if getattr(inputs, "ndim", 2) > 2 else inputs


def _scorer(estimator: Any) -> str:
    """The name of the method that gives its scores; empty where it has none."""
    return next((scorer for scorer in _SCORERS if hasattr(estimator, scorer)), "")


def _asks_processes(model: Any) -> bool:
    """Whether it takes the logs in processes of its own, where a warning of log 0 cannot be held back: bagging does."""
    while steps := getattr(model, "steps", None):
        model = steps[-1][1]
    return hasattr(model, "estimators_features_") and getattr(model, "n_jobs", None) not in (None, 1)


def _scores(model: Any, inputs: Any, dataset: Dataset) -> np.ndarray:
    """Log-probabilities or decision values (n, n_classes) of a fitted model."""
    scorer = _scorer(model)
    if scorer == "predict_log_proba" and _asks_processes(model):
        scorer = "predict_proba"
    with np.errstate(divide="ignore"):  # log 0, which is dealt with below
        scores = as_array(getattr(model, scorer)(inputs)).astype(np.float64)
    if scorer == "predict_log_proba":
        scores = np.maximum(scores, LOWEST_LOG_PROBABILITY)
    elif scorer == "predict_proba":
        scores = log_of(scores)
    elif scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)  # (n, 2)
    columns = class_codes(np.asarray(model.classes_), dataset)
    one_against_one = getattr(model, "decision_function_shape", "") == "ovo" and scorer == "decision_function"
    if scores.shape[1] != len(columns) or (one_against_one and len(columns) > 2):
        raise UnusableReturnError(
            f"{scorer} of {type(model).__name__} gives {scores.shape[1]} columns that are not one for each of its"
            f" {len(columns)} classes, so no margin follows from them (for SVC: decision_function_shape='ovr')."
        )
    return spread_columns(scores, columns, dataset.n_classes)
