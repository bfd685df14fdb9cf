"""Inputs: anything with a length whose rows can be taken; what they lack, and a digest of their content.

The digest is equal for equal values, whatever file or container they came from. Text is the same in a list, an array or
a pandas Series; numbers are the same in either byte order or memory order, in NumPy or torch; a sparse matrix is the
same in every format. The type of numbers counts (a float32 is not a float64), and so do a table's column names, because
learners see them. Images that stay in their files say themselves what stands for their content.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = [
    "as_inputs",
    "content_digest",
    "features",
    "first_infinite",
    "first_not_finite",
    "is_missing",
    "length",
    "one_input",
    "take",
]

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


def one_input(inputs: Any, row: int) -> Any:
    """One input: an array where there is any way to have one."""
    if hasattr(inputs, "iloc"):  # pandas
        return inputs.iloc[row]
    if hasattr(inputs, "tocsr"):  # SciPy, whose rows come in several shapes
        return inputs[[row]].tocoo()
    one = inputs[row]
    return one if isinstance(one, str) or not hasattr(one, "shape") else np.asarray(one)


def features(one: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, in order; of a sparse row those that are not zero."""
    if hasattr(one, "tocoo"):
        yield from ((f"feature {column}", number) for column, number in zip(one.col, one.data))
    elif hasattr(one, "items"):  # a row of a table, a dict
        yield from ((str(name), value) for name, value in one.items())
    elif isinstance(one, np.ndarray) and one.ndim:
        yield from ((f"feature {column}", number) for column, number in enumerate(one.flat))
    else:
        yield "value", one


def content_digest(*parts: Any) -> str:
    """32 hex digits of the content of arrays, tables and lists, in order."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        _add(hasher, part)
    return hasher.hexdigest()


def _add(hasher: Any, value: Any) -> None:
    if isinstance(value, np.generic) and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, str):
        _add_bytes(hasher, b"s", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes | bytearray):
        _add_bytes(hasher, b"b", bytes(value))
    elif value is None or isinstance(value, bool | int | float | complex):
        _add_bytes(hasher, b"n", repr(value).encode())
    elif hasattr(value, "fingerprinted"):
        _add(hasher, value.fingerprinted)
    elif hasattr(value, "iloc"):
        _add_table(hasher, value)
    elif hasattr(value, "tocsr"):
        _add_sparse(hasher, value)
    elif hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__array__"):
        _add_array(hasher, value)
    elif isinstance(value, dict):
        _add_bytes(hasher, b"d", str(len(value)).encode())
        for key in sorted(value, key=repr):
            _add(hasher, key)
            _add(hasher, value[key])
    elif hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        _add_bytes(hasher, b"l", str(length(value)).encode())
        for row in range(length(value)):
            _add(hasher, value[row])
    elif hasattr(value, "__array__"):  # a Pillow image, say
        _add_array(hasher, np.asarray(value))
    else:
        raise DatasetError(
            f"an input of type {type(value).__name__} has no content that can be fingerprinted;"
            " give arrays, tables, numbers, strings or bytes."
        )


def _add_bytes(hasher: Any, tag: bytes, content: bytes) -> None:
    hasher.update(tag + len(content).to_bytes(8, "little"))  # the length keeps ["ab", "c"] apart from ["a", "bc"]
    hasher.update(content)


def _add_array(hasher: Any, array: Any) -> None:
    shape = tuple(int(size) for size in array.shape)
    plain = np.asarray(array if not shape else array[:0])
    if plain.dtype.kind in "OUT":  # text, or mixed objects: element by element
        if len(shape) == 1:
            _add(hasher, np.asarray(array).tolist())
        else:
            _add_bytes(hasher, b"o", str(shape).encode())
            for element in np.asarray(array).ravel().tolist():
                _add(hasher, element)
        return
    if plain.dtype.hasobject:
        raise DatasetError("arrays with named fields of Python objects cannot be fingerprinted; use a DataFrame.")
    dtype = plain.dtype.newbyteorder("<")
    _add_bytes(hasher, b"a", f"{shape} {dtype.str}".encode())
    for _, block in blocks(array) if shape else [(0, plain.reshape(1))]:
        content = np.ascontiguousarray(block, dtype=dtype)
        hasher.update(content.view(np.int64) if dtype.kind in "mM" else content)  # dates export no buffer


def _add_table(hasher: Any, table: Any) -> None:
    if table.ndim == 1:  # a Series: its name and index are not content
        _add(hasher, _column(table))
        return
    _add_bytes(hasher, b"t", str(tuple(table.shape)).encode())
    for position, name in enumerate(table.columns.tolist()):
        _add(hasher, name)
        _add(hasher, _column(table.iloc[:, position]))


def _column(series: Any) -> Any:
    """A column's values with pandas' own types taken off: Int64 is int64, categories and strings are what they say."""
    numpy_dtype = getattr(series.dtype, "numpy_dtype", None)
    if numpy_dtype is not None and numpy_dtype.kind in "biuf" and not series.isna().any():
        return series.to_numpy(dtype=numpy_dtype)
    return series.to_numpy()


def _add_sparse(hasher: Any, matrix: Any) -> None:
    rows = matrix.tocsr()
    if not rows.has_canonical_format or (rows.data == 0).any():
        rows = rows.copy()
        rows.sum_duplicates()  # also sorts the indices
        rows.eliminate_zeros()
    _add_bytes(hasher, b"c", str(tuple(rows.shape)).encode())
    for array in (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data):
        _add_array(hasher, array)


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
