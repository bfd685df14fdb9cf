"""From a model's scores or predicted classes to an `Outcome`, the same way for every learner."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.records import EXTRA_COLUMNS, Outcome, Trial

__all__ = ["needs_scores", "outcome_from_codes", "outcome_from_scores", "prediction_dtype", "score_extras"]


def prediction_dtype(n_classes: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds a class code, and one more value for 'none of them'."""
    return np.dtype(np.uint8 if n_classes < 2**8 else np.uint16 if n_classes < 2**16 else np.uint32)


def needs_scores(record: Collection[str]) -> bool:
    return bool({"margin", "logit"} & set(record))


def outcome_from_codes(
    trial: Trial,
    dataset: Dataset,
    train_codes: np.ndarray,  # (n_train,) predicted class codes; n_classes means 'none of them'
    test_codes: np.ndarray,  # (n_test,)
    *,
    record: Collection[str],
    extras: Mapping[str, np.ndarray] | None = None,
    seconds: float,
    device: str,
) -> Outcome:
    """The outcome of one trial from the classes its model predicts."""
    columns = dict(extras or {})
    if "prediction" in record:
        dtype = prediction_dtype(dataset.n_classes)
        columns["train_prediction"] = train_codes.astype(dtype)
        columns["test_prediction"] = test_codes.astype(dtype)
    if missing := [name for kind in record for name in EXTRA_COLUMNS[kind] if name not in columns]:
        raise LearnerError(
            f"this learner gives predicted classes alone, so {', '.join(missing)} cannot be recorded;"
            " return scores (logits or probabilities) or leave them out of --record."
        )
    return Outcome(
        trial=trial.number,
        kind=trial.kind,
        mask=trial.mask,
        train_correct=train_codes == dataset.y_train,
        test_correct=test_codes == dataset.y_test,
        extras=columns,
        seconds=seconds,
        device=device,
    )


def outcome_from_scores(
    trial: Trial,
    dataset: Dataset,
    train_scores: np.ndarray,  # (n_train, n_classes) logits or log-probabilities
    test_scores: np.ndarray,  # (n_test, n_classes)
    *,
    record: Collection[str],
    seconds: float,
    device: str,
) -> Outcome:
    """The outcome of one trial from its model's logits; ties in the arg max go to the lower class."""
    return outcome_from_codes(
        trial,
        dataset,
        train_scores.argmax(axis=1),
        test_scores.argmax(axis=1),
        record=record,
        extras=score_extras(dataset, train_scores, test_scores, record),
        seconds=seconds,
        device=device,
    )


def score_extras(
    dataset: Dataset,
    train_scores: np.ndarray,  # (n_train, n_classes) logits or log-probabilities
    test_scores: np.ndarray,  # (n_test, n_classes)
    record: Collection[str],
) -> dict[str, np.ndarray]:
    """The columns of `record` that come from scores."""
    extras: dict[str, np.ndarray] = {}
    for split, scores, labels in (
        ("train", train_scores, dataset.y_train),
        ("test", test_scores, dataset.y_test),
    ):
        if "margin" in record:
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
