"""`Dataset`: two splits, their labels, and a fingerprint of the content that ties a run to its data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from memfluence.datasets._inputs import content_digest, first_not_finite, length, take
from memfluence.errors import DatasetError

__all__ = ["Dataset", "from_arrays"]

Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False)
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
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)  # e.g. the true subpopulation
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
        return np.asarray(self.classes)[self.y_train if split == "train" else self.y_test]

    def take_train(self, rows: np.ndarray) -> Any:
        """The training inputs at `rows`, in the type they came in."""
        return take(self.x_train, rows)

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of the content: inputs, labels and their order, whatever file they came from."""
        return content_digest(
            self.x_train, self.x_test, self.y_train, self.y_test, [str(name) for name in self.classes]
        )


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
) -> Dataset:
    """A checked `Dataset`; every fault of the data is one `DatasetError` that says what and where.

    `class_names` are for people and follow the sorted order of the distinct labels, or, where labels are integers
    0..C-1, the label itself.
    """
    labels = {"train": _checked_labels(y_train, "train", name), "test": _checked_labels(y_test, "test", name)}
    for split, inputs in (("train", x_train), ("test", x_test)):
        n_inputs, n_labels = length(inputs), len(labels[split])
        if n_inputs != n_labels:
            raise DatasetError(
                f"{name}: {split} has {n_inputs} inputs but {n_labels} labels; give one label for each input."
            )
        row = first_not_finite(inputs)
        if row is not None:
            raise DatasetError(
                f"{name}: {split} example {row} holds a NaN or an infinity; drop or fill such values first."
            )
    _check_same_shape(x_train, x_test, name)

    in_train, in_test = set(labels["train"].tolist()), set(labels["test"].tolist())
    if any(isinstance(label, str) for label in in_train) != any(isinstance(label, str) for label in in_test):
        raise DatasetError(f"{name}: one split's labels are strings and the other's are integers; use one kind.")
    if len(in_train) < 2:
        raise DatasetError(
            f"{name}: all training labels are {next(iter(in_train))!r}; a classifier needs at least two classes."
        )
    notes = ()
    if unseen := sorted(in_test - in_train):
        shown = ", ".join(repr(label) for label in unseen[:5]) + (", ..." if len(unseen) > 5 else "")
        notes = (f"{name}: test has {len(unseen)} class(es) that train lacks ({shown}); no model can get them right.",)
    if class_names is not None and in_train | in_test <= set(range(len(class_names))):
        classes: tuple[int | str, ...] = tuple(range(len(class_names)))
    else:
        classes = tuple(sorted(in_train | in_test))
    if class_names is None:
        class_names = [str(label) for label in classes]
    elif len(class_names) != len(classes):
        raise DatasetError(
            f"{name}: {len(class_names)} class names for {len(classes)} classes; give one for each class."
        )
    code = {label: k for k, label in enumerate(classes)}
    return Dataset(
        name=name,
        x_train=x_train,
        x_test=x_test,
        y_train=np.array([code[label] for label in labels["train"].tolist()], dtype=np.int64),
        y_test=np.array([code[label] for label in labels["test"].tolist()], dtype=np.int64),
        classes=classes,
        class_names=tuple(str(label) for label in class_names),
        value_range=value_range,
        train_ids=train_ids,
        test_ids=test_ids,
        attributes=attributes or {},
        notes=notes,
    )


def _checked_labels(labels: Any, split: str, name: str) -> np.ndarray:
    """Labels as a flat array of Python-comparable integers or strings."""
    array = np.asarray(labels)
    if array.dtype == object and all(isinstance(label, str) for label in array.ravel()):
        array = array.astype(str)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DatasetError(
            f"{name}: {split} labels must be one per example, a flat array; got the shape {array.shape}."
        )
    if len(array) == 0:
        raise DatasetError(f"{name}: the {split} split is empty; it needs at least one example.")
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuU":
        raise DatasetError(
            f"{name}: {split} labels must be integers or strings; got {array.dtype} (for example {array[0]!r})."
        )
    return array


def _check_same_shape(x_train: Any, x_test: Any, name: str) -> None:
    train_shape, test_shape = getattr(x_train, "shape", None), getattr(x_test, "shape", None)
    if train_shape is not None and test_shape is not None and tuple(train_shape[1:]) != tuple(test_shape[1:]):
        raise DatasetError(
            f"{name}: a training input has the shape {tuple(train_shape[1:])} but a test input"
            f" {tuple(test_shape[1:])}; they must agree."
        )
