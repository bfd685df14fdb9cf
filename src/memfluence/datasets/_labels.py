"""Labels: integers or strings as users write them, and their codes 0..C-1."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from memfluence.datasets.inputs import is_missing
from memfluence.errors import DatasetError

__all__ = ["checked_labels", "encode"]

_INTEGER_LIMIT = 2**63


def checked_labels(labels: Any, split: str, name: str) -> np.ndarray:
    """One split's labels as a flat array (n,) of int64 or of strings.

    Whole floats (3.0) and booleans become integers; pandas Series, categories and nullable types are read as the
    values they hold.
    """
    array = _as_array(labels, split, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DatasetError(
            f"{name}: {split} labels must be one per example, a flat array; got the shape {array.shape}"
            " (the order is x_train, y_train, x_test, y_test; take the argmax of one-hot labels)."
        )
    if len(array) == 0:
        raise DatasetError(f"{name}: the {split} split is empty; it needs at least one example.")
    if array.dtype.kind == "T":  # NumPy's variable-width strings
        array = array.astype(object)
    if array.dtype == object:
        array = _from_objects(array, split, name)
    if array.dtype.kind == "f":
        missing = np.flatnonzero(~np.isfinite(array))
        if len(missing):
            raise _missing_label(name, split, int(missing[0]))
        broken = np.flatnonzero(array != np.round(array))
        if len(broken) or float(np.abs(array).max()) >= _INTEGER_LIMIT:
            raise _wrong_kind(name, split, int(broken[0]) if len(broken) else 0, array)
        array = array.astype(np.int64)
    if array.dtype.kind == "u" and int(array.max()) >= _INTEGER_LIMIT:
        raise DatasetError(f"{name}: {split} labels go up to {array.max()}, beyond 64-bit integers; number them anew.")
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise _wrong_kind(name, split, 0, array)


def encode(
    train: np.ndarray, test: np.ndarray, class_names: Sequence[str] | None, name: str
) -> tuple[np.ndarray, np.ndarray, tuple[int | str, ...]]:
    """Codes of the training and test labels, and the classes that they are codes into.

    With `class_names` and integer labels in 0..len(class_names)-1 the classes are those integers, even ones that
    no example has; otherwise the classes are the distinct labels in sorted order.
    """
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise DatasetError(f"{name}: one split's labels are strings and the other's are integers; use one kind.")
    both = np.concatenate([train, test])
    if class_names is not None and both.dtype.kind == "i" and both.min() >= 0 and both.max() < len(class_names):
        return train, test, tuple(range(len(class_names)))
    classes, codes = np.unique(both, return_inverse=True)
    codes = codes.astype(np.int64)
    return codes[: len(train)], codes[len(train) :], tuple(classes.tolist())


def _as_array(labels: Any, split: str, name: str) -> np.ndarray:
    if isinstance(labels, list | tuple):
        kinds = set(map(type, labels))
        if not kinds <= {int, bool} and not kinds <= {str}:  # np.asarray would turn [1, "a"] into strings
            try:
                nested = np.asarray(labels)
            except ValueError:
                nested = np.empty(0)
            if nested.ndim > 1:
                return nested
            array = np.empty(len(labels), dtype=object)
            array[:] = [label.item() if hasattr(label, "item") else label for label in labels]
            return array
    try:
        return np.asarray(labels)
    except Exception as error:
        raise DatasetError(
            f"{name}: {split} labels must be a flat array or list of integers or strings; got"
            f" {type(labels).__name__}, which NumPy cannot read ({error})."
        ) from error


def _from_objects(array: np.ndarray, split: str, name: str) -> np.ndarray:
    """An array of Python objects as one of strings, integers or floats."""
    values = [value.item() if isinstance(value, np.generic) else value for value in array.tolist()]
    kinds = set(map(type, values))
    if all(issubclass(kind, str) for kind in kinds):
        return np.array(values, dtype=str)
    for row, value in enumerate(values):
        if is_missing(value):
            raise _missing_label(name, split, row)
    if kinds <= {int, bool} or kinds <= {int, bool, float}:
        try:
            return np.array(values, dtype=np.float64 if float in kinds else np.int64)
        except OverflowError:
            raise DatasetError(f"{name}: {split} labels do not fit 64-bit integers; number them anew.") from None
    row = next((row for row, value in enumerate(values) if not isinstance(value, type(values[0]))), 0)
    raise _wrong_kind(name, split, row, array)


def _missing_label(name: str, split: str, row: int) -> DatasetError:
    return DatasetError(f"{name}: {split} label {row} is missing (NaN or None); drop that example or label it.")


def _wrong_kind(name: str, split: str, row: int, array: np.ndarray) -> DatasetError:
    value = array[row].item() if hasattr(array[row], "item") else array[row]
    return DatasetError(
        f"{name}: {split} labels must be all integers or all strings; got {value!r:.60} ({type(value).__name__})"
        f" for example {row}."
    )
