"""Fingerprints: 32 hex digits of values, equal for equal values, whatever file or container they came from.

Text is the same in a list, an array or a pandas Series; numbers are the same in either byte order or memory order, in
NumPy or torch; a sparse matrix is the same in every format. The type of numbers counts (a float32 is not a float64),
and so do a table's column names, because learners see them. Images that stay in their files say themselves what stands
for their content.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

_BYTES_AT_ONCE = 1 << 24  # bounds the copies made while hashing and checking


def fingerprint_of(parts: Iterable[Any]) -> str:
    """The fingerprint of some values in their order."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        _add(hasher, part)
    return hasher.hexdigest()


def blocks_of(array: Any) -> Iterator[tuple[int, np.ndarray]]:
    """An array (NumPy, torch, a memory map) in pieces of bounded size: (first row, the rows)."""
    row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * int(getattr(array.dtype, "itemsize", 8))
    rows = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
    for start in range(0, int(array.shape[0]), rows):
        yield start, np.asarray(array[start : start + rows])


def length_of(inputs: Any) -> int:
    shape = getattr(inputs, "shape", None)  # sparse matrices refuse len()
    return int(shape[0]) if shape else len(inputs)


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
        _add_bytes(hasher, b"l", str(length_of(value)).encode())
        for row in range(length_of(value)):
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
            return _add(hasher, np.asarray(array).tolist())
        _add_bytes(hasher, b"o", str(shape).encode())
        for element in np.asarray(array).ravel().tolist():
            _add(hasher, element)
        return None
    if plain.dtype.hasobject:
        raise DatasetError("arrays with named fields of Python objects cannot be fingerprinted; use a DataFrame.")
    dtype = plain.dtype.newbyteorder("<")
    _add_bytes(hasher, b"a", f"{shape} {dtype.str}".encode())
    for _, block in blocks_of(array if shape else plain.reshape(1)):
        content = np.ascontiguousarray(block, dtype=dtype)
        hasher.update(content.view(np.int64) if dtype.kind in "mM" else content)  # dates export no buffer


def _add_table(hasher: Any, table: Any) -> None:
    if table.ndim == 1:  # a Series: its name and index are not content
        return _add(hasher, _column(table))
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
