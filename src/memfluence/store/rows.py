"""`Rows`: whole rows of segments, every column, moved between segments without being taken apart."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from memfluence.records import EXTRA_COLUMNS
from memfluence.store._merge import precedence
from memfluence.store.parquet import as_array, as_column
from memfluence.store.places import Location
from memfluence.store.segments import DamagedSegmentError, read_table

_BITS = ("mask", "train_correct", "test_correct")
_EXTRAS = {name for names in EXTRA_COLUMNS.values() for name in names}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one or several segments of a run, in the order in which they stand there."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and bool(_comparable(self.table).equals(_comparable(other.table)))

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def nbytes(self) -> int:
        return int(self.table.nbytes)

    @property
    def layout(self) -> str:
        """Columns and their types: only rows of one layout can be joined."""
        return str(_plain(self.table).schema.to_string(show_field_metadata=True))

    @cached_property
    def numbers(self) -> np.ndarray:
        """Trial numbers (rows,) int64."""
        return as_array(self.table["trial"])

    @cached_property
    def kinds(self) -> np.ndarray:
        """Kinds of trial (rows,) int16."""
        return as_array(self.table["kind"])

    @cached_property
    def finished(self) -> np.ndarray:
        """When each trial was finished (rows,) float64, seconds since 1970; NaN where that is not recorded."""
        there = "finished" in self.table.column_names
        return as_array(self.table["finished"]) if there else np.full(len(self), np.nan)

    @cached_property
    def mask(self) -> np.ndarray:
        """Packed masks (rows, ceil(n_train / 8)) uint8."""
        return self.bytes_of("mask")

    @cached_property
    def records(self) -> list[bytes]:
        """For each row 16 bytes that tell its result from others: kind, mask, outcomes and optional columns.

        Where and when a trial was made is no part of its result.
        """
        extras = sorted(_EXTRAS.intersection(self.table.column_names))
        columns = [
            self.kinds.astype("<i2").view(np.uint8).reshape(len(self), 2),
            *map(self.bytes_of, (*_BITS, *extras)),
        ]
        together = np.ascontiguousarray(np.hstack(columns))  # (rows, bytes)
        return [hashlib.blake2b(row, digest_size=16).digest() for row in together]

    @property
    def precedence(self) -> list[tuple[float, bytes]]:
        """For each row a value; of several records of a trial the one with the lowest counts, see `store._merge`."""
        return [precedence(when, record) for when, record in zip(self.finished.tolist(), self.records)]

    def take(self, positions: np.ndarray) -> "Rows":
        """The rows at these positions, in their order."""
        return Rows(self.table.take(as_column(positions)))

    def bytes_of(self, name: str) -> np.ndarray:
        """A column of fixed-size binary as (rows, bytes) uint8."""
        column = self.table[name]
        width = column.type.byte_width
        parts = [
            np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width).reshape(-1, width)
            for chunk in column.chunks
            if len(chunk)
        ]
        return np.concatenate(parts) if parts else np.empty((0, width), np.uint8)


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of one layout, one part after the other."""
    return Rows(pa.concat_tables([_plain(part.table) for part in parts]))


def read_rows(
    path: Location, identity: Mapping[str, str], sizes: Mapping[str, int], content: pa.Buffer | None = None
) -> Rows:
    """All rows of a segment, verified; `sizes` gives n_train and n_test, for the width of the bit columns."""
    table = read_table(path, identity, content=content, widths=sizes)
    for name in _EXTRAS.intersection(table.column_names):
        if not pa.types.is_fixed_size_binary(table[name].type):
            raise DamagedSegmentError(f"{path} holds rows of {table[name].type} as {name}.")
    return Rows(table)


def _plain(table: pa.Table) -> Any:
    """The table without what the schema says about its run, which all segments of it share."""
    return table.replace_schema_metadata(None)


def _comparable(table: pa.Table) -> Any:
    """Floats as the integers of their bits, so that NaN equals NaN."""
    columns = [
        pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        if pa.types.is_float64(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)
