"""`Dataset`: two splits, their labels, and a fingerprint of the content that ties a run to its data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from memfluence.datasets.inputs import (
    as_inputs,
    content_digest,
    first_infinite,
    first_not_finite,
    is_missing,
    length,
    take,
)
from memfluence.errors import DatasetError

__all__ = ["Dataset", "checked_labels", "encode", "from_arrays"]

Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Train and test examples with their labels.

    Inputs are anything indexable: arrays, DataFrames, sparse matrices, lists of strings. Labels are kept as codes into
    `classes`, which holds the labels as the user wrote them (integers or strings), in sorted order.
    Make one with `from_arrays` or `memfluence.datasets.load`, which check what they are given.
    """

    name: str  # what `load` was given, so that a report can load the images again
    x_train: Any
    x_test: Any
    y_train: np.ndarray  # (n_train,) int64 codes
    y_test: np.ndarray  # (n_test,) int64 codes
    classes: tuple[int | str, ...]
    class_names: tuple[str, ...]  # for people; same order as `classes`
    # (lowest, highest) that an input can take, known without looking at the data (an image's 0 and 255): learners scale
    # by it, because a scale fitted on all examples would leak the held-out ones into every model.
    value_range: tuple[float, float] | None = None
    train_ids: Sequence[str] | None = None  # file names or keys, where the source has them
    test_ids: Sequence[str] | None = None
    # What else is known: `train_...` has one entry per training example, `test_...` one per test example.
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    has_missing: bool = False  # some inputs are NaN or None, on purpose: for learners that fill them in by themselves
    notes: tuple[str, ...] = ()  # what the user should be told once (a class that train lacks)

    @property
    def n_train(self) -> int:
        return len(self.y_train)

    @property
    def n_test(self) -> int:
        return len(self.y_test)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def labels(self, split: Split) -> np.ndarray:
        """Labels as the user wrote them (integers or strings), one per example."""
        labels: np.ndarray = np.asarray(self.classes)[self.y_train if split == "train" else self.y_test]
        return labels

    def take_train(self, rows: np.ndarray) -> Any:
        """The training inputs at `rows`, in the type they came in."""
        return take(self.x_train, rows)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of the content: inputs, labels and their order, whatever file they came from.

        The classes and the value range are part of it, because learners shape and scale by them.
        """
        return content_digest(
            self.x_train,
            self.x_test,
            self.y_train,
            self.y_test,
            list(self.classes),
            [float(bound) for bound in self.value_range or ()],
        )

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n_train} train, {self.n_test} test, {self.n_classes} classes)"


def from_arrays(
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    *,
    name: str = "arrays",
    class_names: Sequence[str] | None = None,
    value_range: tuple[float, float] | None = None,
    train_ids: Sequence[str] | None = None,
    test_ids: Sequence[str] | None = None,
    attributes: Mapping[str, np.ndarray] | None = None,
    missing: bool = False,
) -> Dataset:
    """A checked `Dataset`; every fault of the data is one `DatasetError` that says what and where.

    With `missing` a table may lack values: a pipeline with an imputer fills them in from what each model keeps.

    `class_names` are for people and follow the sorted order of the distinct labels, or, where labels are integers
    0..C-1, the label itself. Images in uint8, (n, h, w) or with one more axis, get the value range (0, 255) unless
    another is given.
    """
    train_labels, test_labels = checked_labels(y_train, "train", name), checked_labels(y_test, "test", name)
    x_train, x_test = as_inputs(x_train, f"{name}: train"), as_inputs(x_test, f"{name}: test")
    for split, inputs, n_labels in (("train", x_train, len(train_labels)), ("test", x_test, len(test_labels))):
        if length(inputs) != n_labels:
            raise DatasetError(
                f"{name}: {split} has {length(inputs)} inputs but {n_labels} labels; give one label for each input."
            )
    _check_same_shape(x_train, x_test, name)
    has_missing = False
    for split, inputs in (("train", x_train), ("test", x_test)):
        if missing and hasattr(inputs, "iloc"):
            has_missing = has_missing or bool(inputs.isna().to_numpy().any())
            row, what = first_infinite(inputs), "an infinity; drop or replace it"
        else:
            row, what = first_not_finite(inputs), "a NaN, an infinity or a missing value; drop or fill such values"
        if row is not None:
            raise DatasetError(f"{name}: {split} example {row} holds {what} first.")

    y_train, y_test, classes = encode(train_labels, test_labels, class_names, name)
    in_train, in_test = np.unique(y_train), np.unique(y_test)
    if len(in_train) < 2:
        raise DatasetError(
            f"{name}: all training labels are {classes[int(in_train[0])]!r}; a classifier needs at least two classes."
        )
    if class_names is None:
        class_names = [str(label) for label in classes]
    elif len(class_names) != len(classes):
        raise DatasetError(
            f"{name}: {len(class_names)} class names for {len(classes)} classes; give one for each class."
        )
    dataset = Dataset(
        name=name,
        x_train=x_train,
        x_test=x_test,
        y_train=y_train,
        y_test=y_test,
        classes=classes,
        class_names=tuple(str(label) for label in class_names),
        value_range=_checked_range(value_range, name) or _range_of_images(x_train, x_test),
        train_ids=train_ids,
        test_ids=test_ids,
        attributes=dict(attributes or {}),
        has_missing=has_missing,
        notes=_unseen(np.setdiff1d(in_test, in_train), classes, name)
        + (() if value_range else _dark(x_train, x_test, name)),
    )
    _check_companions(dataset)
    return dataset


def _unseen(codes: np.ndarray, classes: tuple[int | str, ...], name: str) -> tuple[str, ...]:
    if len(codes) == 0:
        return ()
    shown = ", ".join(repr(classes[code]) for code in codes[:5].tolist()) + (", ..." if len(codes) > 5 else "")
    return (f"{name}: test has {len(codes)} class(es) that train lacks ({shown}); no model can get them right.",)


def _check_same_shape(x_train: Any, x_test: Any, name: str) -> None:
    train_shape, test_shape = getattr(x_train, "shape", None), getattr(x_test, "shape", None)
    if train_shape is not None and test_shape is not None and tuple(train_shape[1:]) != tuple(test_shape[1:]):
        raise DatasetError(
            f"{name}: a training input has the shape {tuple(train_shape[1:])} but a test input"
            f" {tuple(test_shape[1:])}; they must agree."
        )
    if hasattr(x_train, "columns") and hasattr(x_test, "columns"):
        for ours, theirs in zip(x_train.columns.tolist(), x_test.columns.tolist(), strict=True):
            if ours != theirs:
                raise DatasetError(
                    f"{name}: train has the column {ours!r} where test has {theirs!r};"
                    " give both tables the same columns in the same order."
                )


def _checked_range(value_range: tuple[float, float] | None, name: str) -> tuple[float, float] | None:
    if value_range is None:
        return None
    low, high = value_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise DatasetError(f"{name}: value_range must be (lowest, highest) with lowest < highest; got {value_range}.")
    return float(low), float(high)


def _range_of_images(x_train: Any, x_test: Any) -> tuple[float, float] | None:
    images = all(isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim in (3, 4) for x in (x_train, x_test))
    return (0.0, 255.0) if images else None


def _dark(x_train: Any, x_test: Any, name: str) -> tuple[str, ...]:
    """Images whose range is taken to be 0..255, but that use less than a quarter of it."""
    highest = max(int(x.max(initial=0)) for x in (x_train, x_test)) if _range_of_images(x_train, x_test) else 255
    if highest >= 64:
        return ()
    return (
        f"{name}: no value of its images is above {highest}, but images in uint8 are taken to run from 0 to 255 and"
        f" would be nearly black to a network; scale them, or say their range (npz:FILE?range=0,{highest}, or"
        f" value_range=(0, {highest}) of from_arrays).",
    )


def _check_companions(dataset: Dataset) -> None:
    """Ids and attributes have one entry per example."""
    sizes = {"train": dataset.n_train, "test": dataset.n_test}
    companions = {"train_ids": dataset.train_ids, "test_ids": dataset.test_ids, **dataset.attributes}
    for key, values in companions.items():
        expected = sizes.get(key.partition("_")[0])
        if values is not None and expected is not None and len(values) != expected:
            raise DatasetError(
                f"{dataset.name}: {key} has {len(values)} entries for {expected} examples; give one for each."
            )


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
