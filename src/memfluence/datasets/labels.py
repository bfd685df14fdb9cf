"""Labels, other targets and ids of examples as users give them.

Labels, in lists, arrays or pandas' types, become one flat array, and codes into classes. Targets that are no classes
stay what they are: numbers, several labels an example, or sequences of labels; `task_of` tells them apart.

Ids are what the user's own data call the examples, so that a row of a table can be found there again. Of a DataFrame or
Series they are its index, of a CSV the rows as pandas counts them or a column, of a folder its paths. Where data call
their examples nothing, an id is the position. Ids are whole numbers, floats or texts, one kind in a dataset; whatever
else an index holds (dates, several levels) is text, as Python prints it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from memfluence.errors import DatasetError

_INTEGER_LIMIT = 2**63
Task = Literal["classes", "numbers", "labels", "sequences", "any"]
TASKS: tuple[Task, ...] = get_args(Task)


def task_of(train: Any, test: Any) -> Task:
    """The task that the targets of both splits are for, by their form.

    Floats that are not whole are "numbers", in one column or several; an array of 0 and 1 with several columns is
    "labels", unless each row has a single 1; other lists of labels are "sequences"; None is "any". All else is
    "classes".
    """
    if train is None and test is None:
        return "any"
    both = [_as_they_are(given) for given in (train, test)]
    kinds = {array.dtype.kind for array in both}
    if all(array.ndim == 2 and array.shape[1] > 1 for array in both):
        if kinds <= set("biuf") and all(((array == 0) | (array == 1)).all() for array in both):
            return "classes" if all((array.sum(axis=1) == 1).all() for array in both) else "labels"
        if not isinstance(train, list | tuple):
            return "numbers" if kinds == {"f"} else "classes"
        are_numbers = kinds <= set("biuf") and any((array != np.round(array)).any() for array in both)
        return "numbers" if are_numbers else "sequences"
    if all(array.ndim == 1 and len(array) and all(map(_is_sequence, array.tolist())) for array in both):
        return "sequences"
    are_finite = kinds <= set("biuf") and all(np.isfinite(array).all() for array in both)
    return "numbers" if are_finite and any((array != np.round(array)).any() for array in both) else "classes"


def checked_targets(given: Any, task: Task, split: str, name: str) -> np.ndarray:
    """One split's targets of a task other than classes: (n,) or (n, L) float64, (n, L) int64, or (n,) lists."""
    array, n = _as_they_are(given), len(given)
    if task == "sequences":
        found = np.empty(n, object)
        for row, one in enumerate(given.tolist() if hasattr(given, "tolist") else given):
            if not _is_sequence(one) or not len(one):
                raise DatasetError(f"{name}: {split} target {row} must be a list of labels; got {one!r:.60}.")
            found[row] = one.tolist() if hasattr(one, "tolist") else list(one)
        return found
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 and task == "numbers" else array
    fits = array.ndim == 2 if task == "labels" else array.ndim in (1, 2)
    if not fits or array.dtype.kind not in "biuf" or not n:
        what = "an array (n, L) of 0 and 1" if task == "labels" else "numbers, one for each example"
        raise DatasetError(f"{name}: {split} targets must be {what}; got {array.dtype} of the shape {array.shape}.")
    good = (array == 0) | (array == 1) if task == "labels" else np.isfinite(array)
    if not good.all():
        row = int(np.argmin(good.reshape(n, -1).all(axis=1)))
        lacks = "is not all 0 and 1" if task == "labels" else "is missing (NaN) or infinite; drop that example"
        raise DatasetError(f"{name}: {split} target {row} {lacks}.")
    return array.astype(np.int64 if task == "labels" else np.float64)


def _as_they_are(given: Any) -> np.ndarray:
    """Targets as an array; lists of different lengths are its entries, and objects that are all numbers are floats."""
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty(len(given), object)
        array[:] = list(given)
    if array.dtype == object and {*map(type, array.ravel().tolist())} <= {bool, int, float}:
        return array.astype(np.float64)
    return array


def _is_sequence(one: Any) -> bool:
    return isinstance(one, list | tuple) or (isinstance(one, np.ndarray) and one.ndim == 1)


def flat_labels(labels: Any, split: str, name: str) -> np.ndarray:
    """One split's labels as a flat array (n,) of int64 or of strings.

    Whole floats (3.0) and booleans become integers; pandas' types are read as the values they hold.
    """
    try:
        array = np.asarray(labels, object if isinstance(labels, list | tuple) else None)  # [1, "a"] are not two strings
    except Exception as error:  # whatever the user's own type raises
        raise DatasetError(
            f"{name}: {split} labels must be a flat array or list of integers or strings; got"
            f" {type(labels).__name__}, which NumPy cannot read ({error})."
        ) from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DatasetError(
            f"{name}: {split} labels must be one per example, a flat array; got the shape {array.shape}"
            " (the order is x_train, y_train, x_test, y_test; take the argmax of one-hot labels)."
        )
    if len(array) == 0:
        raise DatasetError(f"{name}: the {split} split is empty; it needs at least one example.")
    if array.dtype.kind in "OT":  # T: NumPy's strings of any width
        array = _from_objects(array, split, name)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise _missing_label(name, split, int(np.isfinite(array).argmin()))
        broken = array != np.round(array)
        if broken.any() or float(np.abs(array).max()) >= _INTEGER_LIMIT:
            raise _wrong_kind(name, split, int(broken.argmax()), array)
        return array.astype(np.int64)
    if array.dtype.kind == "u" and int(array.max()) >= _INTEGER_LIMIT:
        raise DatasetError(f"{name}: {split} labels go up to {array.max()}, beyond 64-bit integers; number them anew.")
    if array.dtype.kind not in "biuU":
        raise _wrong_kind(name, split, 0, array)
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def encoded(
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
    y_train, y_test = np.split(codes.astype(np.int64), [len(train)])
    return y_train, y_test, tuple(classes.tolist())


def _from_objects(array: np.ndarray, split: str, name: str) -> np.ndarray:
    """An array of Python objects as one of strings, integers or floats."""
    values = [value.item() if hasattr(value, "item") else value for value in array.tolist()]
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


def is_missing(value: Any) -> bool:
    """True if one value is None, NaN, an infinity, or one of pandas' missing values."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float | np.floating) and not np.isfinite(value)


# ---- ids


def index_of(inputs: Any, labels: Any, where: str) -> list[Any] | None:
    """The index of a pandas object of inputs, or else of labels; None where it only counts from 0.

    Inputs and labels that both have one must agree: they would be joined row by row, whatever their indices say.
    """
    indices = [part.index for part in (inputs, labels) if hasattr(part, "iloc")]
    differ = len(indices) == 2 and not indices[0].equals(indices[1])
    for row, (one, other) in enumerate(zip(*indices) if differ else ()):
        if one != other and not (one != one and other != other):  # two NaN are alike
            raise DatasetError(
                f"{where} inputs and labels have different indices: row {row} is {one!r:.60} in the inputs and"
                f" {other!r:.60} in the labels. Give both in one order (y.loc[x.index]); if they are in one order"
                " already, give the labels without their index (y.to_numpy())."
            )
    own = indices[0].tolist() if indices else []
    return None if own == list(range(len(own))) else own


def ids_of_one_kind(train: Any, test: Any) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """Ids of both splits as whole numbers, floats or texts; None for a split that has none.

    Sequences that make their entries when asked, such as `Files`, are texts and stay as they are.
    """
    if not all(ids is None or isinstance(ids, list | tuple) or hasattr(ids, "tolist") for ids in (train, test)):
        return train, test
    train, test = (
        [_plain(one) for one in (ids.tolist() if hasattr(ids, "tolist") else ids or ())] for ids in (train, test)
    )
    kinds = {*map(type, train), *map(type, test)}
    kind: Any = str
    if kinds == {int} and all(-_INTEGER_LIMIT <= one < _INTEGER_LIMIT for one in (*train, *test)):
        kind = int
    elif kinds <= {int, float} and float in kinds:
        kind = float
    return [kind(one) for one in train] or None, [kind(one) for one in test] or None


def first_repeated(ids: Sequence[Any] | None) -> Any:
    """The first id that several examples have; None where each is there once."""
    if not isinstance(ids, list) or len(set(ids)) == len(ids):
        return None
    return next(one for one, times in Counter(ids).items() if times > 1)


def _plain(one: Any) -> Any:
    return one.item() if isinstance(one, np.generic) else one
