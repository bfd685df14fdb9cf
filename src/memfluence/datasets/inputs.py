"""Inputs: anything with a length whose rows can be taken."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = ["as_inputs", "blocks", "first_infinite", "first_not_finite", "is_missing", "length", "take"]

_BYTES_AT_ONCE = 1 << 24  # bounds the copies made while hashing and checking


def as_inputs(inputs: Any, where: str) -> Any:
    """The inputs in a form whose rows can be taken, otherwise unchanged.

    Sparse matrices become CSR, Arrow and Polars tables become DataFrames, and a list of numbers or of equally
    long rows of numbers becomes an array. `where` opens the message if nothing can be taken from them.
    """
    if hasattr(inputs, "tocsr"):  # SciPy; COO and DIA have no rows to take
        return inputs.tocsr()
    if hasattr(inputs, "to_pandas") and not hasattr(inputs, "iloc"):
        return inputs.to_pandas()
    if isinstance(inputs, list | tuple):
        return _rows_of_numbers(inputs)
    if isinstance(inputs, str | bytes | dict | set) or not hasattr(inputs, "__getitem__") or _has_no_length(inputs):
        raise DatasetError(
            f"{where} inputs must be an array, a table, a sparse matrix or a list, one entry per example;"
            f" got {type(inputs).__name__}."
        )
    return inputs


def length(inputs: Any) -> int:
    shape = getattr(inputs, "shape", None)  # sparse matrices refuse len()
    return int(shape[0]) if shape else len(inputs)


def take(inputs: Any, rows: np.ndarray) -> Any:
    """The inputs at `rows` (positions), in the type they came in."""
    if hasattr(inputs, "iloc"):  # pandas
        return inputs.iloc[rows]
    if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):  # NumPy, SciPy sparse, torch, memory maps
        return inputs[rows]
    return [inputs[row] for row in rows.tolist()]


def blocks(array: Any) -> Iterator[tuple[int, np.ndarray]]:
    """An array (NumPy, torch, a memory map) in pieces of bounded size: (first row, the rows)."""
    row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * int(getattr(array.dtype, "itemsize", 8))
    rows = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for start in range(0, int(array.shape[0]), rows):
        yield start, np.asarray(array[start : start + rows])


def first_not_finite(inputs: Any) -> int | None:
    """The first row that holds a NaN, an infinity or a missing value; None if there is none."""
    if hasattr(inputs, "iloc"):
        return _first_bad_in_table(inputs)
    if hasattr(inputs, "tocoo"):
        entries = inputs.tocoo()
        rows = entries.row[~np.isfinite(entries.data)] if entries.data.dtype.kind in "fc" else entries.row[:0]
        return int(rows.min()) if len(rows) else None
    if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):
        if getattr(inputs.dtype, "kind", "O") in "biu":  # has no such values; and images in files stay there
            return None
        for start, block in blocks(inputs):
            if block.dtype.kind in "fc":
                bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)  # (rows,)
                if bad.any():
                    return start + int(np.flatnonzero(bad)[0])
            elif block.dtype == object:
                for row, values in enumerate(block.reshape(len(block), -1).tolist()):
                    if any(is_missing(value) for value in values):
                        return start + row
        return None
    for row in range(length(inputs)):
        value = inputs[row]
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "fc" and not np.isfinite(value).all():
                return row
        elif is_missing(value):
            return row
    return None


def first_infinite(table: Any) -> int | None:
    """The first row of a table that holds an infinity; None if there is none."""
    bad = np.zeros(length(table), bool)
    for column in [table] if table.ndim == 1 else [table.iloc[:, k] for k in range(table.shape[1])]:
        if getattr(column.dtype, "kind", "O") in "fc":
            bad |= np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return int(np.flatnonzero(bad)[0]) if bad.any() else None


def is_missing(value: Any) -> bool:
    """True if one value is None, NaN, an infinity, or one of pandas' missing values."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float | np.floating) and not np.isfinite(value)


def _has_no_length(inputs: Any) -> bool:
    try:
        length(inputs)
    except TypeError:
        return True
    return False


def _rows_of_numbers(inputs: list[Any] | tuple[Any, ...]) -> Any:
    if len(inputs) == 0 or isinstance(inputs[0], str | bytes | dict):
        return inputs
    try:
        array = np.asarray(inputs)
    except (TypeError, ValueError):  # rows of different lengths, or not numbers: for learners that take them so
        return inputs
    return array if array.dtype.kind in "biufc" else inputs


def _first_bad_in_table(table: Any) -> int | None:
    bad = table.isna().to_numpy().reshape(length(table), -1).any(axis=1)  # (n,)
    found = [row for row in (first_infinite(table), *np.flatnonzero(bad)[:1].tolist()) if row is not None]
    return min(found, default=None)
