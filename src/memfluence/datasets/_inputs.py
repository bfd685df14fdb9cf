"""What can be an input: anything with a length whose rows can be taken. Also its content digest."""

import hashlib
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = ["content_digest", "first_not_finite", "length", "take"]

_ROWS_AT_ONCE = 4096  # bounds the copies made while hashing and checking


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


def first_not_finite(inputs: Any) -> int | None:
    """The first row that holds a NaN or an infinity; None if there is none or the type has no such thing."""
    if hasattr(inputs, "iloc"):
        bad = inputs.isna().to_numpy().reshape(length(inputs), -1).any(axis=1)
        return int(np.flatnonzero(bad)[0]) if bad.any() else None
    if getattr(inputs, "format", None) in {"csr", "csc", "coo"}:
        bad_entries = np.flatnonzero(~np.isfinite(inputs.tocoo().data))
        return int(inputs.tocoo().row[bad_entries].min()) if len(bad_entries) else None
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind not in "fc":
        return None
    for start in range(0, len(inputs), _ROWS_AT_ONCE):
        block = inputs[start : start + _ROWS_AT_ONCE]
        finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not finite.all():
            return start + int(np.flatnonzero(~finite)[0])
    return None


def content_digest(*parts: Any) -> str:
    """32 hex digits of the content of arrays, tables and lists, in order."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        _update(hasher, part)
    return hasher.hexdigest()


def _update(hasher: Any, part: Any) -> None:
    if hasattr(part, "iloc"):
        import pandas as pd

        hasher.update(f"table {getattr(part, 'columns', [part.name] if hasattr(part, 'name') else [])!s}".encode())
        hasher.update(pd.util.hash_pandas_object(part, index=False).to_numpy().tobytes())
    elif hasattr(part, "tocsr"):
        rows = part.tocsr()
        hasher.update(f"sparse {rows.shape} {rows.dtype}".encode())
        for array in (rows.indptr, rows.indices, rows.data):
            hasher.update(np.ascontiguousarray(array).tobytes())
    elif isinstance(part, np.ndarray) and part.dtype != object:
        hasher.update(f"array {part.shape} {part.dtype.str}".encode())
        for start in range(0, len(part), _ROWS_AT_ONCE):
            hasher.update(np.ascontiguousarray(part[start : start + _ROWS_AT_ONCE]).tobytes())
    else:
        hasher.update(f"list {length(part)}".encode())
        for value in part:
            if isinstance(value, str):
                content = b"s" + value.encode()
            elif isinstance(value, bytes):
                content = b"b" + value
            elif isinstance(value, int | float | bool | np.number):
                content = f"n{value!r}".encode()
            elif hasattr(value, "__array__"):
                array = np.asarray(value)
                content = f"a{array.shape}{array.dtype.str}".encode() + np.ascontiguousarray(array).tobytes()
            elif isinstance(value, dict | list | tuple):
                content = b"r" + repr(value).encode()
            else:
                raise DatasetError(
                    f"an input of type {type(value).__name__} has no content that can be fingerprinted;"
                    " give arrays, tables, numbers, strings or bytes."
                )
            hasher.update(len(content).to_bytes(8, "little"))
            hasher.update(content)
