"""What other people's models return, checked and turned into class codes or scores with one column per class."""

from typing import Any

import numpy as np

from memfluence.datasets import Dataset

__all__ = ["LOWEST_LOG_PROBABILITY", "UnusableReturnError", "as_array", "class_codes", "log_of", "spread_columns"]

# Stands for log 0: the smallest probability that float32 holds in full precision. A forest in which no tree votes for a
# class says 'less than I can tell', and -inf would turn every mean of log-odds into -inf.
LOWEST_LOG_PROBABILITY = float(np.log(np.finfo(np.float32).tiny))


class UnusableReturnError(Exception):
    """What a model returned cannot be read; fails the trial."""


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
