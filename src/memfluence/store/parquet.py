"""Parquet files and Arrow columns, read with care for what Arrow does behind the scenes.

`to_numpy`, `pq.read_table` and `pa.array` import pandas. A pool thread of Arrow that drops the last reference to
Python's memory while the interpreter ends aborts the whole process, so files are read into Arrow's own memory, on the
calling thread.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ALWAYS = 128 * 2**20
_EXPANSION = 100  # masks are random, so no honest segment comes near
_TEXT = 4  # bytes of a position in a dictionary, as which texts are read


def read_bytes(path: Path) -> pa.Buffer:
    """A whole file, in memory that belongs to Arrow."""
    with pa.OSFile(os.fsencode(path)) as file:
        return file.read_buffer()


def content_digest(content: Any) -> str:
    """32 hex digits of bytes or of a buffer."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@contextmanager
def _one_error() -> Iterator[None]:
    """Arrow calls some faults of what is in a file an OSError, though nothing is read from a disk here."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def most_bytes(size: int) -> int:
    """The most bytes that a Parquet file of `size` bytes may take when it is read."""
    return max(_ALWAYS, _EXPANSION * size)


class ParquetContent:
    """An open Parquet file of flat columns that takes no more than `most_bytes`. Use it in a `with`.

    A fault of the file is an ArrowException here, and in `read`.
    """

    def __init__(self, content: pa.Buffer) -> None:
        self._content, self._most, self._texts_take = content, most_bytes(content.size), 0
        with _one_error():
            self._file = self._opened()
            self.schema = self._file.schema_arrow
            self._check_sizes()

    def __enter__(self) -> "ParquetContent":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _opened(self, **options: Any) -> pq.ParquetFile:
        return pq.ParquetFile(
            pa.BufferReader(self._content),
            thrift_string_size_limit=max(1, self._content.size),  # a list has no more parts than the file has bytes
            thrift_container_size_limit=max(1, self._content.size),
            page_checksum_verification=True,
            **options,
        )

    def _check_sizes(self) -> None:
        """Refuse what the metadata says before anything is decompressed: columns in columns, and far too much of it."""
        said = self._file.metadata
        row = sum(_width(field) for field in self.schema)
        if len(set(self.schema.names)) != len(self.schema.names):
            raise pa.ArrowInvalid("it has two columns of one name")
        pages = sum(said.row_group(at).total_byte_size for at in range(said.num_row_groups))
        if not 0 <= said.num_rows * row + pages <= self._most:
            raise pa.ArrowInvalid(f"it claims more than {self._most} bytes, from {self._content.size}")

    def read(self, columns: Sequence[str], may_lack: Sequence[str] = (), shared: Sequence[str] = ()) -> pa.Table:
        """These columns. Nulls are NaN in numbers that `may_lack` some; texts stay in dictionaries if `shared`."""
        if lacking := [name for name in columns if name not in self.schema.names]:
            raise pa.ArrowInvalid(f"it has no column {lacking[0]!r}")
        texts = [name for name in columns if pa.types.is_string(self.schema.field(name).type)]
        with _one_error():
            if texts and (shared or not self._may_repeat(texts)):  # opening it again costs more than reading a few rows
                self._file = self._opened(metadata=self._file.metadata, read_dictionary=texts)
            table = self._file.read(columns=list(columns), use_threads=False)
            table.validate(full=True)  # positions in dictionaries, and texts that are UTF-8
        for at, (name, column) in enumerate(zip(table.column_names, table.columns)):
            if column.null_count:
                if name not in may_lack or not pa.types.is_floating(column.type):
                    raise pa.ArrowInvalid(f"its column {name!r} has values that are missing")
                table = table.set_column(at, table.schema.field(at), column.fill_null(math.nan))
            if name not in shared and pa.types.is_dictionary(column.type):
                field = table.schema.field(at).with_type(pa.string())
                table = table.set_column(at, field, self._texts(column, name))
        return table

    def _may_repeat(self, texts: Sequence[str]) -> bool:
        """Whether each text could stand as often as its column has values, and all together take little."""
        said, at_most = self._file.metadata, 0
        for name in texts:
            at = self.schema.names.index(name)
            for group in range(said.num_row_groups):
                column = said.row_group(group).column(at)
                at_most += 4 * column.num_values * column.total_uncompressed_size  # letters take 4
        return at_most <= _ALWAYS

    def _texts(self, column: Any, name: str) -> Any:
        """A dictionary may hold one long text that many rows share: told before it is written out for each."""
        lengths = (pc.max(pc.binary_length(chunk.dictionary)).as_py() for chunk in column.chunks)
        longest = max((length or 0 for length in lengths), default=0)
        self._texts_take += 4 * longest * len(column)  # an array has room for the longest in each row
        if self._texts_take > self._most:
            raise pa.ArrowInvalid(f"its texts, up to the column {name!r}, take more than {self._most} bytes")
        return column.cast(pa.string())


def _width(field: pa.Field) -> int:
    """Bytes that a value of a column takes; only columns of numbers, texts and bytes of one length are read."""
    kind = field.type
    if pa.types.is_string(kind) or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)):
        return _TEXT
    if kind.id == pa.binary(1).id:
        return int(kind.byte_width)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return int(kind.bit_width) // 8
    raise pa.ArrowInvalid(f"its column {field.name!r:.40} holds {kind!s:.40}")


def read_columns(
    path: Path, choose: Callable[[Sequence[str]], Sequence[str]], may_lack: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Columns of numbers and texts of a Parquet file; `choose` is given all names, and gives those that are wanted."""
    with ParquetContent(read_bytes(path)) as content:
        chosen = choose(content.schema.names)
        for name in chosen:
            if content.schema.field(name).type.id == pa.binary(1).id:
                raise pa.ArrowInvalid(f"its column {name!r} holds bytes")
        table = content.read(chosen, may_lack)
        return {name: as_array(table.column(name)) for name in chosen}


def as_array(column: Any) -> np.ndarray:
    """A column without nulls, of numbers or strings, as an array of its own memory.

    A dictionary of strings is an array of Python's strings, in which rows of one text share it.
    """
    if pa.types.is_dictionary(column.type):
        shared = (
            np.array(chunk.dictionary.to_pylist(), dtype=object)[_numbers(chunk.indices)] for chunk in column.chunks
        )
        return np.concatenate([np.empty(0, dtype=object), *shared])
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        encoded = column.dictionary_encode().chunks  # hosts and devices are few
        texts = [np.array(chunk.dictionary.to_pylist(), dtype=str)[_numbers(chunk.indices)] for chunk in encoded]
        return np.concatenate(texts) if texts else np.empty(0, dtype=str)
    parts = [_numbers(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())


def _numbers(chunk: Any) -> np.ndarray:
    dtype = np.dtype(chunk.type.to_pandas_dtype())
    if not len(chunk):
        return np.empty(0, dtype)
    # Buffers are bitmap and values; a slice has an offset into them.
    return np.frombuffer(chunk.buffers()[1], dtype, count=len(chunk), offset=chunk.offset * dtype.itemsize)


def as_column(values: np.ndarray) -> pa.Array:
    """An array of int64 or float64 as a column without nulls."""
    kind = pa.int64() if values.dtype.kind == "i" else pa.float64()
    content = np.ascontiguousarray(values, np.int64 if values.dtype.kind == "i" else np.float64)
    return pa.Array.from_buffers(kind, len(content), [None, pa.py_buffer(content)])


def packed_width(n: int) -> int:
    """Bytes that n bits take."""
    return (n + 7) // 8


def pack(bits: np.ndarray) -> np.ndarray:
    """(..., n) bool -> (..., ceil(n / 8)) uint8."""
    return np.packbits(bits, axis=-1, bitorder="little")


def unpack(packed: np.ndarray, n: int) -> np.ndarray:
    """(..., ceil(n / 8)) uint8 -> (..., n) bool."""
    return np.unpackbits(packed, axis=-1, count=n, bitorder="little").view(bool)
