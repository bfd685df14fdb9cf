"""Outcomes of trials from what models predict, the same way for every learner; and the loop over trials.

Where classes are predicted the outcome is right or wrong, perhaps with scores of the classes. Of other targets it is
one real number for each example, higher is better: what `SCORES` makes of targets and predictions, or a function does,
or what the learner gives itself.

Arrays that other people's models return are checked first and turned into class codes, or into scores with one column
per class.
"""

import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import DatasetError, LearnerError
from memfluence.records import EXTRA_COLUMNS, GIVEN, Failure, Outcome, Trial

NOTHING_KEPT = "the trial keeps no example, so there is nothing to train on; raise `keep`."
_EXITED = (
    "the learner's code ended the program, by sys.exit or by reading options that are not its own; raise an error."
)

# Stands for log 0: the smallest probability that float32 holds in full precision. A forest in which no tree votes for a
# class says 'less than I can tell', and -inf would turn every mean of log-odds into -inf.
LOWEST_LOG_PROBABILITY = float(np.log(np.finfo(np.float32).tiny))


# Task -> the ways to score predictions, the default first.
SCORES: dict[str, dict[str, str]] = {
    "numbers": {"absolute": "minus the absolute error", "squared": "minus the squared error"},
    "labels": {"share": "the share of an example's labels that are right", "exact": "1 if all of them are"},
    "sequences": {"share": "the share of a sequence's positions that are right", "exact": "1 if all of them are"},
}
HowToScore = str | Callable[[Any, Any], Any] | None  # a name, or a function of (targets, predicted); None: the default


class UnusableReturnError(Exception):
    """A model returned something that cannot be read; the trial fails."""


def as_array(value: Any) -> np.ndarray:
    """A NumPy array from an array, a torch tensor on any device, a Series or a list."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value  # NumPy has no bfloat16
        value = value.numpy()
    array = np.asarray(value)
    return np.array(array.tolist()) if array.dtype == object else array


def class_codes(predicted: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Codes (n,) of predicted labels as the user writes them; n_classes for a label that the dataset does not have."""
    classes = np.asarray(dataset.classes)
    if predicted.dtype.kind == "b" or (predicted.dtype.kind == "f" and (predicted == np.round(predicted)).all()):
        predicted = predicted.astype(np.int64)
    if predicted.dtype.kind not in ("U" if classes.dtype.kind == "U" else "iu"):
        raise UnusableReturnError(
            f"predicted classes must be labels like {dataset.classes[0]!r}; got {predicted.dtype} values like"
            f" {predicted.ravel()[0].item()!r} (return scores as (n, {dataset.n_classes}), one column per class)."
        )
    order = np.argsort(classes)
    position = np.searchsorted(classes, predicted, sorter=order).clip(max=len(classes) - 1)
    codes = order[position]  # (n,)
    return np.where(classes[codes] == predicted, codes, dataset.n_classes)


def log_of(probabilities: np.ndarray) -> np.ndarray:
    """log p, and LOWEST_LOG_PROBABILITY for 0."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(probabilities.astype(np.float64)), LOWEST_LOG_PROBABILITY)


def spread_columns(scores: np.ndarray, columns: np.ndarray, n_classes: int) -> np.ndarray:
    """Scores (n, len(columns)) as (n, n_classes): classes that the model never saw stand far below the row's lowest."""
    lowest = scores.min(axis=1, keepdims=True, initial=np.inf, where=np.isfinite(scores))  # (n, 1)
    floor = lowest + LOWEST_LOG_PROBABILITY
    spread = np.repeat(floor, n_classes, axis=1)  # (n, n_classes)
    spread[:, columns] = np.maximum(scores, floor)
    return spread


def prediction_dtype(n_classes: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds a class code, and one more value for 'none of them'."""
    return np.dtype(np.uint8 if n_classes < 2**8 else np.uint16 if n_classes < 2**16 else np.uint32)


def needs_scores(record: Collection[str]) -> bool:
    """Whether somebody chose what comes from scores alone."""
    return bool({"margin", "logit", "test_margin"} & set(record))


def outcome_from(
    trial: Trial,
    dataset: Dataset,
    train: np.ndarray,  # (n_train,) predicted class codes, n_classes for 'none of them'; or (n_train, n_classes) logits
    test: np.ndarray,  # (n_test,) or (n_test, n_classes) likewise
    *,
    record: Collection[str],
    extras: Mapping[str, np.ndarray] | None = None,
    seconds: float,
    device: str,
) -> Outcome:
    """The outcome of one trial from what its model predicts; ties in the arg max of logits go to the lower class."""
    columns = dict(extras or {})
    if train.ndim == 2:
        columns |= score_extras(dataset, train, test, record)
        train, test = train.argmax(axis=1), test.argmax(axis=1)
    if "prediction" in record:
        dtype = prediction_dtype(dataset.n_classes)
        columns |= {"train_prediction": train.astype(dtype), "test_prediction": test.astype(dtype)}
    if missing := [name for kind in record for name in EXTRA_COLUMNS.get(kind, ()) if name not in columns]:
        raise LearnerError(
            f"this learner gives predicted classes alone, so {', '.join(missing)} cannot be recorded;"
            " return scores (logits or probabilities) or leave them out of `record`."
        )
    return Outcome(
        trial=trial.number,
        kind=trial.kind,
        mask=trial.mask,
        train_correct=train == dataset.y_train,
        test_correct=test == dataset.y_test,
        extras=columns,
        seconds=seconds,
        device=device,
    )


def score_extras(
    dataset: Dataset,
    train_scores: np.ndarray,  # (n_train, n_classes) logits or log-probabilities
    test_scores: np.ndarray,  # (n_test, n_classes)
    record: Collection[str],
) -> dict[str, np.ndarray]:
    """The columns of `record` that come from scores; of what is `GIVEN`, margins."""
    extras: dict[str, np.ndarray] = {}
    for split, scores, labels in (("train", train_scores, dataset.y_train), ("test", test_scores, dataset.y_test)):
        if {"margin", f"{split}_margin", GIVEN} & set(record):
            extras[f"{split}_margin"] = _margin(scores, labels)
        if "logit" in record:
            extras[f"{split}_logit"] = _log_odds(scores, labels)
    return extras


def _split_label(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The label's score (n,) and all scores with the label's set to -inf (n, n_classes)."""
    rows = np.arange(len(labels))
    others = scores.astype(np.float64)
    own = others[rows, labels].copy()
    others[rows, labels] = -np.inf
    return own, others


def _margin(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Score of the label minus the largest other score, as float16 (clipped to its range)."""
    own, others = _split_label(scores, labels)
    return _as_half(own - others.max(axis=1))


def _log_odds(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """log p / (1 - p) of the label's softmax probability: own - logsumexp(others), which never overflows."""
    own, others = _split_label(scores, labels)
    top = others.max(axis=1)
    return _as_half(own - (top + np.log(np.exp(others - top[:, None]).sum(axis=1))))


def _as_half(values: np.ndarray) -> np.ndarray:
    limit = float(np.finfo(np.float16).max)
    return np.asarray(np.clip(values, -limit, limit), dtype=np.float16)


def scored(
    trial: Trial, dataset: Dataset, train: Any, test: Any, *, record: Collection[str], seconds: float, device: str
) -> Outcome:
    """The outcome of one trial whose learner gives a score of its own for each example, (n_train,) and (n_test,)."""
    if asked := sorted(set(record) - {"score", GIVEN}):
        raise LearnerError(
            f"this learner gives a score of its own for each example, so {', '.join(asked)} cannot be recorded; leave"
            " out `record`."
        )
    columns = {}
    for split, values, n in (("train", train, dataset.n_train), ("test", test, dataset.n_test)):
        array = as_array(values)
        if array.shape != (n,) or array.dtype.kind not in "fiub":
            raise UnusableReturnError(
                f"the scores of the {n} {split} examples must be numbers of the shape ({n},), one for each; got"
                f" {array.dtype} of the shape {array.shape}."
            )
        with np.errstate(over="ignore"):
            columns[f"{split}_score"] = array.astype(np.float32)
        if not (finite := np.isfinite(columns[f"{split}_score"])).all():
            raise UnusableReturnError(
                f"the score of {split} example {int(finite.argmin())} is NaN or infinite; scores must be numbers."
            )
    wrong = np.zeros(dataset.n_train, bool), np.zeros(dataset.n_test, bool)
    return Outcome(trial.number, trial.kind, trial.mask, *wrong, extras=columns, seconds=seconds, device=device)


def scores_of(dataset: Dataset, how: HowToScore, split: Literal["train", "test"], predicted: Any) -> np.ndarray:
    """One score (n,) for each example of a split, from what was predicted for it."""
    targets = dataset.labels(split)
    if callable(how):
        return as_array(how(targets, predicted))
    if dataset.task == "sequences":
        return _of_sequences(targets, predicted, how == "exact", split)
    found = as_array(predicted.toarray() if hasattr(predicted, "toarray") else predicted)
    found = found[:, 0] if targets.ndim == 1 and found.ndim == 2 and found.shape[1] == 1 else found
    if found.shape != targets.shape or found.dtype.kind not in "biuf":
        raise UnusableReturnError(
            f"predict returned {found.dtype} of the shape {found.shape} for the {split} targets of the shape"
            f" {targets.shape}; it must return as many numbers."
        )
    if dataset.task == "labels":
        right = np.asarray(found == targets)  # (n, L)
        return np.asarray(right.all(axis=1) if how == "exact" else right.mean(axis=1))
    error = np.abs(found - targets)
    error = error * error if how == "squared" else error
    return np.asarray(-error.reshape(len(error), -1).mean(axis=1))


def _of_sequences(targets: np.ndarray, predicted: Any, exact: bool, split: str) -> np.ndarray:
    found, scores = list(predicted), np.empty(len(targets))
    if len(found) != len(targets):
        raise UnusableReturnError(
            f"predict returned {len(found)} sequences for the {len(targets)} {split} examples; it must return one each."
        )
    for row, (target, labels) in enumerate(zip(targets, found)):
        if len(labels) != len(target):
            raise UnusableReturnError(
                f"predict returned {len(labels)} labels for {split} example {row}, whose sequence has {len(target)}."
            )
        scores[row] = np.mean([one == other for one, other in zip(target, labels)])
    return scores == 1 if exact else scores


def one_by_one(trials: Sequence[Trial], outcome_of: Callable[[Trial], Outcome]) -> Iterator[Outcome | Failure]:
    """Each trial's outcome; a trial that raises gives a `Failure` and the others go on. A warning is shown once.

    A `LearnerError` ends the group: the learner cannot do what is asked, whatever the subset. So do a `DatasetError`,
    such as that of a damaged image, and `KeyboardInterrupt`, by which engines stop as well. All else fails its trial,
    `SystemExit` too, which would end the run unseen.
    """
    for trial in trials:
        result: Outcome | Failure
        if not len(trial.kept):
            result = Failure(trial.number, NOTHING_KEPT)
        else:
            try:
                with _warnings_once():
                    result = outcome_of(trial)
            except (LearnerError, DatasetError, KeyboardInterrupt):
                raise
            except UnusableReturnError as error:
                result = Failure(trial.number, str(error), traceback.format_exc())
            except SystemExit as error:
                result = Failure(trial.number, f"SystemExit: {error}; {_EXITED}", traceback.format_exc())
            except BaseException as error:
                result = Failure(trial.number, f"{type(error).__name__}: {error}", traceback.format_exc())
        yield result


_shown: set[tuple[type[Warning], str, int]] = set()


@contextmanager
def _warnings_once() -> Iterator[None]:
    """Each warning once in the life of the process: a solver that does not converge says so in every trial.

    Python's own "once" forgets whenever a library touches the filters, as scikit-learn does in every fit.
    """
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        finally:
            new = {(warning.category, warning.filename, warning.lineno): warning for warning in caught}
    for place in new.keys() - _shown:
        _shown.add(place)
        warnings.warn_explicit(new[place].message, *place)


def private_copy(inputs: Any) -> Any:
    """Inputs that other people's code may write into without changing the dataset for the trials that follow."""
    for method in ("clone", "copy"):  # torch; NumPy, pandas, SciPy, list
        if hasattr(inputs, method):
            return getattr(inputs, method)()
    return inputs
