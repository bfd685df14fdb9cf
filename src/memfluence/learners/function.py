"""`FunctionLearner`: any training code, as a function `train(x, y, seed) -> predict`."""

import functools
import inspect
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._identity import identity
from memfluence.learners._one_by_one import one_by_one, private_copy
from memfluence.learners._outcomes import outcome_from_codes, outcome_from_scores
from memfluence.learners._predictions import UnusableReturnError, as_array, class_codes, log_of, spread_columns
from memfluence.records import Failure, Outcome, Trial

__all__ = ["FunctionLearner"]


@dataclass(frozen=True)
class FunctionLearner:
    """A function `train(x, y, seed)` that trains on the kept examples and returns a function `predict(x)`.

    `x` comes in the type of the dataset's inputs, `y` as the labels were written, `seed` is an integer in [0, 2**31) of
    the trial's own: take every random choice from it. `predict` is called with all training and with all test inputs
    and returns, for n inputs, as an array or a torch tensor, either

    - (n,) predicted labels, a label that the dataset lacks counting as wrong; or
    - (n, n_classes) scores, one column per class in the sorted order of all labels, or of the labels in the `y` that it
      was given. Rows that are non-negative and sum to 1 are read as probabilities, others as logits.

    Margins and log-odds can only be recorded from scores. An exception fails its trial alone.

    A run goes on with the same function alone. Part of its identity are its compiled code (so another version of Python
    makes it another one; a function named as file.py:train does not have this limit), default arguments, closure, the
    `self` of a method, the arguments of a partial, and the globals that the code names: plain data, arrays and tensors
    by their content, objects by what pickle would store of them, estimators by their parameters and what they have
    learnt, and functions, classes and modules of your own in the same way. Installed packages count by name.

    Not part of it are files that the code reads, environment variables, random generators, torch devices, variables
    that the function assigns itself (`global`, `nonlocal`), and objects that cannot be pickled. What is known to be
    left out is listed as "not_identified" in run.json. What the function changes in place (a list that it appends to,
    an estimator that it fits) makes it another learner for a later run: make such things inside the function.
    """

    function: Callable[[Any, Any, int], Callable[[Any], Any]]
    covered: str | None = None  # a module whose source is part of the identity already

    def __post_init__(self) -> None:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # written in C
            return
        try:
            signature.bind(None, None, 0)
        except TypeError:
            raise LearnerError(
                f"a learner function is called as train(x, y, seed), which {self.name}{signature} does not allow."
            ) from None

    @property
    def name(self) -> str:
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        name = getattr(function, "__name__", type(function).__name__)
        return re.sub(r"\W", "", name) or "function"

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "function", **identity("function", self.function, self.covered)}

    def group_size(self, dataset: Dataset, device: str) -> int:
        return 1

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        labels = dataset.labels("train")
        return one_by_one(trials, lambda trial: self._outcome(dataset, labels, trial, record))

    def _outcome(self, dataset: Dataset, labels: np.ndarray, trial: Trial, record: Collection[str]) -> Outcome:
        started = time.perf_counter()
        predict: Any = self.function(dataset.take_train(trial.kept), labels[trial.kept], trial.seed)
        if not callable(predict):
            hint = "; return its method, model.predict" if hasattr(predict, "predict") else ""
            raise UnusableReturnError(
                f"{self.name} must return a function predict(x); got an object of type {type(predict).__name__}{hint}."
            )
        train, test = (
            _checked(as_array(predict(private_copy(inputs))), n, dataset, split, trial)
            for split, inputs, n in (
                ("train", dataset.x_train, dataset.n_train),
                ("test", dataset.x_test, dataset.n_test),
            )
        )
        if train.ndim != test.ndim:
            raise UnusableReturnError(
                "predict returned labels for one split and scores for the other; return one kind."
            )
        if train.ndim == 1:
            return outcome_from_codes(
                trial, dataset, train, test, record=record, seconds=time.perf_counter() - started, device="cpu"
            )
        train, test = _as_logits(train, test)
        columns = _columns(train, dataset, trial)
        return outcome_from_scores(
            trial,
            dataset,
            spread_columns(train, columns, dataset.n_classes),
            spread_columns(test, columns, dataset.n_classes),
            record=record,
            seconds=time.perf_counter() - started,
            device="cpu",
        )


def _checked(returned: np.ndarray, n: int, dataset: Dataset, split: str, trial: Trial) -> np.ndarray:
    """Class codes (n,) or raw scores (n, columns) of a split."""
    expected = f"({n},) predicted labels or ({n}, {dataset.n_classes}) scores"
    if returned.ndim not in (1, 2) or len(returned) != n:
        raise UnusableReturnError(
            f"predict returned an array of the shape {returned.shape} for the {n} {split} inputs; expected {expected}."
        )
    if returned.ndim == 1:
        return class_codes(returned, dataset)
    if returned.shape[1] not in _possible_columns(dataset, trial):
        raise UnusableReturnError(
            f"predict returned {returned.shape[1]} columns for {dataset.n_classes} classes; expected {expected},"
            " one column per class in sorted order."
        )
    if returned.dtype.kind not in "fiu" or np.isnan(returned).any() or np.isposinf(returned).any():
        raise UnusableReturnError(
            f"predict's scores for {split} must be numbers; some are NaN, infinite or not numbers."
        )
    return returned.astype(np.float64)


def _possible_columns(dataset: Dataset, trial: Trial) -> dict[int, np.ndarray]:
    """Number of columns -> the classes they stand for."""
    seen = np.unique(dataset.y_train[trial.kept])
    return {len(seen): seen, dataset.n_classes: np.arange(dataset.n_classes)}


def _columns(scores: np.ndarray, dataset: Dataset, trial: Trial) -> np.ndarray:
    return _possible_columns(dataset, trial)[scores.shape[1]]


def _as_logits(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores as they are, or the logs of probabilities."""
    if all((scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3) for scores in (train, test)):
        return log_of(train), log_of(test)
    return train, test
