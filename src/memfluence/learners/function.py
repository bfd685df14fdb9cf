"""`FunctionLearner`: any training code, as a function `train(x, y, seed)`, with `device` in torch.

It returns `predict(x)`, or `score(x, y)`: an outcome of its own.
"""

import importlib.util
import inspect
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, Task
from memfluence.errors import LearnerError, needs_torch
from memfluence.learners.identity import called, identity
from memfluence.learners.outcomes import (
    UnusableReturnError,
    as_array,
    class_codes,
    log_of,
    one_by_one,
    outcome_from,
    private_copy,
    scored,
    scores_of,
    spread_columns,
)
from memfluence.records import Failure, Outcome, Trial

if TYPE_CHECKING:
    from memfluence.learners.nets.device import DeviceData

_EXTRAS = (
    "device",
    "inputs",
    "n_classes",
    "sample_weight",
)  # what a function may ask for by name, beside x, y and seed


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

    A function that has an outcome of its own returns `score(x, y)` instead, which is told from `predict(x)` by its two
    required parameters. It is called with all training and with all test examples and returns one real number for each,
    (n,), higher is better: minus a loss, an IoU, a reward, a log-likelihood. Targets are then whatever the data have:
    classes, numbers, several labels, sequences, or none (`y` is None). `predict(x)` for targets that are no classes
    returns predictions like them, and the outcome is minus the absolute error, or the share of labels that are right.

    A function may ask for more by parameters with these names and without defaults:

    - `device`: "cpu", "cuda" or "cuda:N". The function then lives in torch: `x` is a tensor on that device (uint8 stays
      so, other integers are int64, the rest float32; axes as in the dataset), `y` one of class codes, 0 to C-1 in the
      sorted order of all labels, and torch's generators are seeded with `seed`. It returns a `torch.nn.Module`, which
      is asked in eval mode on the device where it lies, or a function `predict(x)`. Both are given blocks of the inputs
      as `x` came, not as the function may have scaled it, and return logits (n, C), probabilities, or codes (n,).
    - `n_classes`: C, also where the subset lacks a class.
    - `sample_weight`: the weights of the examples in `x`, as the data say them; None where they have none.
    - `inputs`: the pair (all training inputs, all test inputs). The function then returns the pair of their predictions
      itself. They are there to be predicted: to fit anything on them would leak the examples that are left out.

    A run goes on with the same function alone: the same compiled code, defaults and closure, and the same values of the
    globals that the code names (`memfluence.learners.identity` has the details). Another version of Python compiles
    other code; a function named as file.py:train does not have this limit. Files that the code reads, imports of your
    own modules, environment variables, random generators, and variables that the function assigns itself (`global`,
    `nonlocal`) are not compared. Values that cannot be compared are listed as "not_identified" in run.json. A value
    that the function changes in place (a list that it appends to, an estimator that it fits) makes it another learner
    for a later run: make such values inside the function.
    """

    function: Callable[..., Any]
    covered: str | None = None  # a module whose source is part of the identity already
    # The data on the device, once for all trials.
    _loaded: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # written in C
            return
        try:
            signature.bind(None, None, 0, **dict.fromkeys(self._asked_for()))
        except TypeError:
            raise LearnerError(
                f"a learner function is called as train(x, y, seed), which {self.name}{signature} does not allow;"
                " parameters named device, n_classes, inputs and sample_weight may follow. (A factory of torch modules"
                " needs a recipe: net.py:make@fast.)"
            ) from None

    def _asked_for(self) -> list[str]:
        """Those of `_EXTRAS` that the function has without a default; one with a default keeps it."""
        try:
            parameters = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return []
        return [name for name in _EXTRAS if name in parameters and parameters[name].default is inspect.Parameter.empty]

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionLearner, (self.function, self.covered)

    @property
    def name(self) -> str:
        return called(self.function, "function")

    @property
    def tasks(self) -> tuple[Task, ...]:
        return ("classes", "numbers", "labels", "sequences", "any")

    @property
    def takes_weights(self) -> bool:
        return "sample_weight" in self._asked_for()

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "function", **identity("function", self.function, self.covered)}

    def group_size(self, dataset: Dataset, device: str) -> int:
        return 1

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        if "device" not in self._asked_for():
            yield from one_by_one(trials, lambda trial: self._outcome(dataset, None, trial, record))
            return
        if importlib.util.find_spec("torch") is None:
            raise needs_torch("A function that takes the parameter 'device'")
        from memfluence.learners.nets.device import one_thread

        with one_thread():
            data = self._data(dataset, device)
            coded = replace(dataset, classes=tuple(range(dataset.n_classes)))  # labels are their codes
            yield from one_by_one(trials, lambda trial: self._outcome(coded, data, trial, record))

    def _data(self, dataset: Dataset, device: str) -> "DeviceData":
        from memfluence.learners.nets.device import DeviceData

        key = (dataset.fingerprint, device)
        if key not in self._loaded:
            self._loaded.clear()
            self._loaded[key] = DeviceData(dataset, device, self.name)
        data: DeviceData = self._loaded[key]
        return data

    def _outcome(self, dataset: Dataset, data: "DeviceData | None", trial: Trial, record: Collection[str]) -> Outcome:
        started = time.perf_counter()
        with data.trial(trial.seed) if data else nullcontext():
            train, test, are_scores = self._predictions(dataset, data, trial)
        if are_scores:
            seconds, device = time.perf_counter() - started, data.device_name if data else "cpu"
            return scored(trial, dataset, train, test, record=record, seconds=seconds, device=device)
        if train.ndim != test.ndim:
            raise UnusableReturnError(
                "predict returned labels for one split and scores for the other; return one kind."
            )
        if train.ndim == 2:
            columns = _possible_columns(dataset, trial)[train.shape[1]]
            train, test = (spread_columns(one, columns, dataset.n_classes) for one in _as_logits(train, test))
        seconds, device = time.perf_counter() - started, data.device_name if data else "cpu"
        return outcome_from(trial, dataset, train, test, record=record, seconds=seconds, device=device)

    def _predictions(
        self, dataset: Dataset, data: "DeviceData | None", trial: Trial
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Of both splits class codes (n,) or scores of classes (n, columns), and False; or scores of examples (n,)."""
        splits = (data.train, data.test) if data else (dataset.x_train, dataset.x_test)
        given: Sequence[Any] = (None, None)
        if data:
            given = data.targets
        elif dataset.task != "any":
            given = dataset.labels("train"), dataset.labels("test")
        if data:
            x, y = data.kept(trial.kept)
        else:
            x, y = dataset.take_train(trial.kept), None if given[0] is None else given[0][trial.kept]
        asked = self._asked_for()
        weights = None if dataset.sample_weight is None else np.asarray(dataset.sample_weight)[trial.kept]
        extras: dict[str, Any] = {"n_classes": dataset.n_classes, "device": data and data.device}
        extras["sample_weight"] = weights
        if "inputs" in asked:
            extras["inputs"] = tuple(private_copy(inputs) for inputs in splits)
        returned: Any = self.function(x, y, trial.seed, **{name: extras[name] for name in asked})
        del x, y  # on a device their room may be needed
        found: Sequence[Any]
        has_own = "inputs" not in asked and _takes_targets(returned)
        if dataset.task == "any" and not has_own:
            raise LearnerError(
                f"{dataset.name} has no labels, so {self.name} must return a function score(x, y) that gives one number"
                " for each example; its y is None."
            )
        if "inputs" in asked:
            found = self._pair(returned)
        elif not callable(returned):
            raise UnusableReturnError(self._no_model(returned))
        elif data:
            found = [
                data.predicted(returned, *((inputs, y) if has_own else (inputs,))) for inputs, y in zip(splits, given)
            ]
        elif has_own:
            found = [returned(private_copy(inputs), private_copy(y)) for inputs, y in zip(splits, given)]
        else:
            found = [returned(private_copy(inputs)) for inputs in splits]
        if has_own:
            return found[0], found[1], True
        if dataset.task != "classes":
            return scores_of(dataset, None, "train", found[0]), scores_of(dataset, None, "test", found[1]), True
        of_train = _checked(as_array(found[0]), dataset.n_train, dataset, "train", trial)
        return of_train, _checked(as_array(found[1]), dataset.n_test, dataset, "test", trial), False

    def _pair(self, returned: Any) -> Sequence[Any]:
        if isinstance(returned, tuple | list) and len(returned) == 2:
            return returned
        raise UnusableReturnError(
            f"{self.name} takes 'inputs', so it must return a pair, the predictions for its training and for its test"
            f" inputs; got an object of type {type(returned).__name__}."
        )

    def _no_model(self, returned: Any) -> str:
        hint = "; return its method, model.predict" if hasattr(returned, "predict") else ""
        if isinstance(returned, tuple) or hasattr(returned, "shape"):
            hint = "; to return predictions, take the parameter 'inputs', which are what is to be predicted"
        kind = type(returned).__name__
        return f"{self.name} must return a function predict(x) or score(x, y); got an object of type {kind}{hint}."


def _takes_targets(returned: Any) -> bool:
    """Whether what was returned is score(x, y): a function, or a torch module, of two required parameters."""
    try:
        parameters = inspect.signature(getattr(returned, "forward", returned)).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in positional and one.default is inspect.Parameter.empty for one in parameters) == 2


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


def _as_logits(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores as they are, or the logs of probabilities."""
    if all((scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3) for scores in (train, test)):
        return log_of(train), log_of(test)
    return train, test
