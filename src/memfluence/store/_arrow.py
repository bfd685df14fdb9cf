"""Parquet files and Arrow columns, read with care for what Arrow does behind the scenes.

`to_numpy`, `pq.read_table` and `pa.array` import pandas. A pool thread of Arrow that drops the last reference to
Python's memory while the interpreter ends aborts the whole process, so files are read into Arrow's own memory, on the
calling thread.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["as_array", "as_column", "content_digest", "open_parquet", "read_bytes", "read_columns"]


def read_bytes(path: Path) -> pa.Buffer:
    """A whole file, in memory that belongs to Arrow."""
    with pa.OSFile(str(path)) as file:
        return file.read_buffer()


def content_digest(content: Any) -> str:
    """32 hex digits of bytes or of a buffer."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def open_parquet(content: pa.Buffer) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)


def read_columns(file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    return file.read(columns=list(columns), use_threads=False)


def as_array(column: Any) -> np.ndarray:
    """A column without nulls, of numbers or strings, as an array of its own memory."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.asarray(column.to_pylist(), dtype=str)
    dtype = np.dtype(column.type.to_pandas_dtype())
    parts = [  # buffers are bitmap and values; a slice has an offset into them
        np.frombuffer(chunk.buffers()[1], dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def as_column(values: np.ndarray) -> pa.Array:
    """An array of int64 or float64 as a column without nulls."""
    kind = pa.int64() if values.dtype.kind == "i" else pa.float64()
    content = np.ascontiguousarray(values, np.int64 if values.dtype.kind == "i" else np.float64)
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(content)])
