"""`Dataset`: two splits of examples, their targets, and a fingerprint of the content that ties a run to its data.

Targets are classes, or what else a learner is to give: numbers, several labels, sequences of labels (`Dataset.task`).

Inputs are anything with a length whose rows can be taken: arrays, DataFrames, sparse matrices, lists.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memfluence.datasets.fingerprint import blocks_of, fingerprint_of, length_of
from memfluence.datasets.labels import (
    TASKS,
    Task,
    checked_targets,
    encoded,
    first_repeated,
    flat_labels,
    ids_of_one_kind,
    index_of,
    is_missing,
    task_of,
)
from memfluence.errors import DatasetError

_NOT_FINITE = "a NaN, an infinity or a missing value; drop or fill such values"
WEIGHT = "sample_weight"  # of each training example: the attribute train_sample_weight
_NO_CLASS = "all"  # the one class of examples whose targets are no classes


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Train and test examples; labels are codes into `classes`, which holds them as the user wrote them, sorted.

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
    train_ids: Sequence[Any] | None = None  # what the user's data call their examples (`ids`); None: by position
    test_ids: Sequence[Any] | None = None
    # What else is known: `train_...` has one entry per training example, `test_...` one per test example.
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    has_missing: bool = False  # some inputs are NaN or None, on purpose: for learners that fill them in by themselves
    notes: tuple[str, ...] = ()  # what the user should be told once (a class that train lacks)
    # What is to be predicted, where that is no class: every example is then of one class, so that "the same class"
    # restricts nothing. Numbers (n,) or (n, L), 0 and 1 (n, L), or lists (n,); None where there are no targets at all.
    task: Task = "classes"
    targets: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def n_train(self) -> int:
        return len(self.y_train)

    @property
    def n_test(self) -> int:
        return len(self.y_test)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def labels(self, split: Literal["train", "test"]) -> np.ndarray:
        """Labels as the user wrote them (integers or strings), or other targets, one per example."""
        if self.targets is not None:
            return self.targets[split == "test"]
        return np.asarray(np.asarray(self.classes)[self.y_train if split == "train" else self.y_test])

    @property
    def sample_weight(self) -> np.ndarray | None:
        """The weight of each training example, for learners that take it."""
        return self.attributes.get(f"train_{WEIGHT}")

    def take_train(self, rows: np.ndarray) -> Any:
        """The training inputs at `rows` (positions), in the type they came in."""
        inputs = self.x_train
        if hasattr(inputs, "iloc"):  # pandas
            return inputs.iloc[rows]
        if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):  # NumPy, SciPy sparse, torch, memory maps
            return inputs[rows]
        return [inputs[row] for row in rows.tolist()]

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits of the content: inputs, labels and their order, whatever file they came from.

        The classes and the value range are part of it, because learners shape and scale by them.
        """
        parts = [self.x_train, self.x_test, self.y_train, self.y_test, list(self.classes)]
        parts.append([float(bound) for bound in self.value_range or ()])
        if self.task != "classes":
            parts.append([self.task, *(self.targets or ())])
        if self.sample_weight is not None:
            parts.append([WEIGHT, np.asarray(self.sample_weight, np.float64)])
        return fingerprint_of(parts)

    def __repr__(self) -> str:
        what = f"{self.n_classes} classes" if self.task == "classes" else f"task {self.task}"
        return f"Dataset({self.name!r}: {self.n_train} train, {self.n_test} test, {what})"


def from_arrays(
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    *,
    name: str = "arrays",
    class_names: Sequence[str] | None = None,
    value_range: tuple[float, float] | None = None,
    train_ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    attributes: Mapping[str, np.ndarray] | None = None,
    missing: bool = False,
    task: Task | None = None,
) -> Dataset:
    """A checked `Dataset`; every fault of the data is one `DatasetError` that says what and where.

    With `missing` a table may lack values: a pipeline with an imputer fills them in from what each model keeps.
    `class_names` are for people and follow the sorted order of the distinct labels, or, where labels are integers
    0..C-1, the label itself. Images in uint8, (n, h, w) or with one more axis, get the value range (0, 255) unless
    another is given. Examples are known by `train_ids` and `test_ids`; without them by the index of a DataFrame or
    Series, which must be the same for inputs and labels; without one by position.

    `task` is what the labels are for; left out, it follows from their form (`task_of`). "numbers": a regression, floats
    (n,) or (n, L); "labels": several an example, 0 and 1 (n, L); "sequences": a list of labels for each example; "any":
    none at all (None), for a learner with an outcome of its own. The attribute "train_sample_weight" has a weight for
    each training example, which learners are given that take it.
    """
    given, ids = {"train": (x_train, y_train), "test": (x_test, y_test)}, {"train": train_ids, "test": test_ids}
    task = task or task_of(y_train, y_test)
    if task not in TASKS or (task != "any" and (y_train is None or y_test is None)):
        raise DatasetError(
            f"{name}: the task must be one of {', '.join(TASKS)}, and all but 'any' need labels of both splits; got the"
            f" task {task!r:.40}."
        )
    labels: list[Any] = [
        None if task == "any" else flat_labels(y, *of) if task == "classes" else checked_targets(y, task, *of)
        for y, *of in ((y_train, "train", name), (y_test, "test", name))
    ]
    x_train, x_test = _inputs(x_train, f"{name}: train"), _inputs(x_test, f"{name}: test")
    for split, inputs, there in (("train", x_train, labels[0]), ("test", x_test, labels[1])):
        if there is not None and (n := length_of(inputs)) != len(there):
            raise DatasetError(
                f"{name}: {split} has {n} inputs but {len(there)} labels; give one label for each input."
            )
        index = index_of(*given[split], f"{name}: {split}")
        ids[split] = index if ids[split] is None else ids[split]
    _check_same_shape(x_train, x_test, name)
    has_missing = False
    for split, inputs in (("train", x_train), ("test", x_test)):
        may_lack = missing and hasattr(inputs, "iloc")
        has_missing |= may_lack and bool(inputs.isna().to_numpy().any())
        if (row := _first_bad(inputs, may_lack)) is not None:
            what = "an infinity; drop or replace it" if may_lack else _NOT_FINITE
            is_lacking = hasattr(inputs, "iloc") and bool(inputs.isna().to_numpy()[row].any())
            way_out = ", or say missing=True of from_arrays if the model fills in its inputs itself" * is_lacking
            known_as = "" if (own := ids[split]) is None else f" (id {own[row]!r:.60})"
            raise DatasetError(f"{name}: {split} example {row}{known_as} holds {what} first{way_out}.")

    targets: Any = None
    if task == "classes":
        y_train, y_test, classes = encoded(labels[0], labels[1], class_names, name)
    else:
        y_train, y_test = (np.zeros(length_of(inputs), np.int64) for inputs in (x_train, x_test))
        classes, targets = (_NO_CLASS,), None if task == "any" else tuple(labels)
        if targets and targets[0].shape[1:] != targets[1].shape[1:]:
            raise DatasetError(
                f"{name}: train has targets of the shape {targets[0].shape} and test of {targets[1].shape}; they must"
                " have the same columns."
            )
    in_train = np.unique(y_train)
    if task == "classes" and len(in_train) < 2:
        raise DatasetError(
            f"{name}: all training labels are {classes[int(in_train[0])]!r}; a classifier needs at least two classes."
        )
    if class_names is not None and len(class_names) != len(classes):
        raise DatasetError(
            f"{name}: {len(class_names)} class names for {len(classes)} classes; give one for each class."
        )
    named = {f"{split}_ids": one for split, one in ids.items()}
    for key, values in {**named, **(attributes or {})}.items():
        expected = {"train": len(y_train), "test": len(y_test)}.get(key.partition("_")[0])
        if values is not None and expected is not None and len(values) != expected:
            raise DatasetError(f"{name}: {key} has {len(values)} entries for {expected} examples; give one for each.")
    attributes = dict(attributes or {})
    if (weights := attributes.get(f"train_{WEIGHT}")) is not None:
        attributes[f"train_{WEIGHT}"] = _checked_weights(weights, x_train, name)
    notes = []
    train_ids, test_ids = ids_of_one_kind(ids["train"], ids["test"])
    for split, own in (("training", train_ids), ("test", test_ids)):
        if (twice := first_repeated(own)) is not None:
            notes.append(
                f"{name}: several {split} examples have the id {twice!r:.60}; in tables their positions (`index`) tell"
                " them apart, and pandas' reset_index gives each row an index of its own."
            )
    if unseen := [repr(classes[code]) for code in np.setdiff1d(y_test, in_train)]:
        shown = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
        notes.append(
            f"{name}: test has {len(unseen)} class(es) that train lacks ({shown}); no model can get them right."
        )
    if value_range is None and all(_is_eight_bits(x) for x in (x_train, x_test)):
        value_range = (0, 255)
        if (highest := max(int(x.max(initial=0)) for x in (x_train, x_test))) < 64:  # a quarter of it
            notes.append(
                f"{name}: no value of its images is above {highest}, but images in uint8 are taken to run from 0 to 255"
                f" and would be nearly black to a network; scale them, or say their range (npz:FILE?range=0,{highest},"
                f" or value_range=(0, {highest}) of from_arrays)."
            )
    elif value_range is not None and not -np.inf < value_range[0] < value_range[1] < np.inf:
        raise DatasetError(f"{name}: value_range must be (lowest, highest) with lowest < highest; got {value_range}.")
    return Dataset(
        name=name,
        x_train=x_train,
        x_test=x_test,
        y_train=y_train,
        y_test=y_test,
        classes=classes,
        class_names=tuple(map(str, classes if class_names is None else class_names)),
        value_range=None if value_range is None else (float(value_range[0]), float(value_range[1])),
        train_ids=train_ids,
        test_ids=test_ids,
        attributes=attributes,
        has_missing=has_missing,
        notes=tuple(notes),
        task=task,
        targets=targets,
    )


def _checked_weights(given: Any, x_train: Any, name: str) -> np.ndarray:
    """One weight (n_train,) float64 for each training example."""
    if all(hasattr(part, "iloc") for part in (given, x_train)) and not given.index.equals(x_train.index):
        raise DatasetError(
            f"{name}: train_{WEIGHT} has another index than the training inputs; give both in one order"
            " (w.loc[x.index]), or the weights without their index (w.to_numpy())."
        )
    weights = np.asarray(given)
    if hasattr(given, "iloc"):
        with suppress(TypeError, ValueError):  # texts
            weights = given.to_numpy(np.float64, na_value=np.nan)
    if weights.dtype.kind not in "biuf" or weights.ndim != 1:
        raise DatasetError(
            f"{name}: train_{WEIGHT} must be numbers (n,), one for each training example; got {weights.dtype} of the"
            f" shape {weights.shape}."
        )
    weights = weights.astype(np.float64)
    if not (good := np.isfinite(weights) & (weights >= 0)).all():
        row = int(good.argmin())
        raise DatasetError(f"{name}: train_{WEIGHT} {row} is {weights[row]:g}; weights must be finite, and 0 or more.")
    return weights


def as_numbers(data: Dataset) -> Dataset:
    """The same data for a regression: labels that are whole numbers, also as texts (75.0), are targets like others."""
    if data.task in ("numbers", "any"):
        return data
    no_numbers = [label for label in data.classes if not _is_number(label)] if data.task == "classes" else []
    if no_numbers:
        raise DatasetError(
            f"{data.name}: a regressor needs numbers, and a label is {no_numbers[0]!r:.60}; give a classifier."
        )
    targets = data.labels("train").astype(np.float64), data.labels("test").astype(np.float64)
    y_train, y_test = (np.zeros(len(labels), np.int64) for labels in targets)
    own: dict[str, Any] = {"classes": (_NO_CLASS,), "class_names": (_NO_CLASS,), "y_train": y_train, "y_test": y_test}
    return replace(data, **own, task="numbers", targets=targets, notes=())


def _is_number(label: Any) -> bool:
    try:
        return bool(np.isfinite(float(label)))
    except ValueError:
        return False


def with_class_names(data: Dataset, names: Sequence[str] | str | Path) -> Dataset:
    """The same data, their classes called so: texts in the sorted order of the labels, or a file of one a line."""
    if isinstance(names, str | Path):
        try:
            names = Path(names).expanduser().read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text in UTF-8"
            raise DatasetError(f"The file of class names {names} cannot be read ({why}).") from error
        names = [name.strip() for name in names if name.strip()]
    if len(names) != data.n_classes:
        first = ", ".join(map(str, data.classes[:5])) + (", ..." if data.n_classes > 5 else "")
        raise DatasetError(
            f"{data.name}: {len(names)} class names for {data.n_classes} classes; give one for each, in the order of"
            f" the labels ({first})."
        )
    return replace(data, class_names=tuple(map(str, names)))


def _is_eight_bits(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.ndim in (3, 4)


def _check_same_shape(x_train: Any, x_test: Any, name: str) -> None:
    train_shape, test_shape = getattr(x_train, "shape", None), getattr(x_test, "shape", None)
    if train_shape is not None and test_shape is not None and tuple(train_shape[1:]) != tuple(test_shape[1:]):
        raise DatasetError(
            f"{name}: a training input has the shape {tuple(train_shape[1:])} but a test input"
            f" {tuple(test_shape[1:])}; they must agree."
        )
    if hasattr(x_train, "columns") and hasattr(x_test, "columns"):
        columns = zip(x_train.columns.tolist(), x_test.columns.tolist(), strict=True)
        if differ := next(((ours, theirs) for ours, theirs in columns if ours != theirs), None):
            raise DatasetError(
                f"{name}: train has the column {differ[0]!r} where test has {differ[1]!r};"
                " give both tables the same columns in the same order."
            )


def _inputs(inputs: Any, where: str) -> Any:
    """The inputs in a form whose rows can be taken, otherwise unchanged.

    Sparse matrices become CSR, Arrow and Polars tables become DataFrames, and a list of numbers or of equally
    long rows of numbers becomes an array.
    """
    if hasattr(inputs, "tocsr"):  # SciPy; COO and DIA have no rows to take
        return inputs.tocsr()
    if hasattr(inputs, "to_pandas") and not hasattr(inputs, "iloc"):
        return inputs.to_pandas()
    if isinstance(inputs, list | tuple):
        if len(inputs) == 0 or isinstance(inputs[0], str | bytes | dict):
            return inputs
        try:
            array = np.asarray(inputs)
        except (TypeError, ValueError):  # rows of different lengths, or not numbers: for learners that take them so
            return inputs
        return array if array.dtype.kind in "biufc" else inputs
    try:
        length_of(inputs)
        if isinstance(inputs, str | bytes | dict | set) or not hasattr(inputs, "__getitem__"):
            raise TypeError
    except TypeError:
        raise DatasetError(
            f"{where} inputs must be an array, a table, a sparse matrix or a list, one entry per example;"
            f" got {type(inputs).__name__}."
        ) from None
    return inputs


def _first_bad(inputs: Any, may_lack: bool) -> int | None:
    """The first row that holds an infinity or, unless they may lack values, a NaN or a missing value."""
    if hasattr(inputs, "iloc"):
        bad = np.zeros(length_of(inputs), bool)
        if not may_lack:
            bad |= inputs.isna().to_numpy().reshape(len(bad), -1).any(axis=1)
        for column in [inputs] if inputs.ndim == 1 else [inputs.iloc[:, k] for k in range(inputs.shape[1])]:
            if getattr(column.dtype, "kind", "O") in "fc":
                bad |= np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return int(bad.argmax()) if bad.any() else None
    if hasattr(inputs, "tocoo"):
        entries = inputs.tocoo()
        rows = entries.row[~np.isfinite(entries.data)] if entries.data.dtype.kind in "fc" else entries.row[:0]
        return int(rows.min()) if len(rows) else None
    if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):
        if getattr(inputs.dtype, "kind", "O") in "biu":  # has no such values; and images in files stay there
            return None
        for start, block in blocks_of(inputs):
            if block.dtype.kind in "fc":
                bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)  # (rows,)
                if bad.any():
                    return start + int(bad.argmax())
            elif block.dtype == object:
                for row, values in enumerate(block.reshape(len(block), -1).tolist()):
                    if any(is_missing(value) for value in values):
                        return start + row
        return None
    for row in range(length_of(inputs)):
        value = inputs[row]
        are_numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
        if not np.isfinite(value).all() if are_numbers else is_missing(value):
            return row
    return None
