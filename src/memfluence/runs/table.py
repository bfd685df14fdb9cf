"""Tables for other people's tools: the same columns as CSV, Parquet or NPZ, the same bytes for the same values."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from memfluence.errors import InputError
from memfluence.npzfiles import npz_bytes
from memfluence.store import write_whole

__all__ = ["as_cell", "from_cell", "rows", "write_table"]

ROWS_AT_ONCE = 10_000
_RUNS = re.compile(r"'*[=+\-@\t\r]")  # beginnings of what a spreadsheet calculates, with the apostrophes that stop it
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def as_cell(value: object) -> object:
    """A value as a CSV file has it: a text that a spreadsheet would run as a formula gets an apostrophe before it.

    Numbers, and texts that are numbers, stay as they are. `from_cell` gives the text back.
    """
    return f"'{value}" if isinstance(value, str) and _RUNS.match(value) and not _NUMBER.fullmatch(value) else value


def from_cell(text: str) -> str:
    """The text that `as_cell` was given."""
    return text[1:] if text.startswith("'") and _RUNS.match(text) else text


def write_table(columns: Mapping[str, np.ndarray], path: Path) -> None:
    """Write columns to `path` in the format that its ending names."""
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": npz_bytes}
    if path.suffix.lower() not in writers:
        raise InputError(f"{path} must end in .csv, .parquet or .npz, which says the format.")
    write_whole(path, writers[path.suffix.lower()](columns))


def rows(columns: Mapping[str, np.ndarray]) -> Iterator[dict[str, object]]:
    """One JSON-able dict per row, as they are asked for; what cannot be estimated is None."""
    for values in _each_row(columns, None):
        yield dict(zip(columns, values))


def _each_row(columns: Mapping[str, np.ndarray], unknown: object) -> Iterator[tuple[object, ...]]:
    """Rows as Python's own values, some at a time, since those take many times the memory of arrays."""
    for start in range(0, max((len(values) for values in columns.values()), default=0), ROWS_AT_ONCE):
        some = (values[start : start + ROWS_AT_ONCE].tolist() for values in columns.values())
        yield from zip(*([unknown if isinstance(one, float) and one != one else one for one in part] for part in some))


class _Lines(io.StringIO):
    """Lines that end in a line feed. Told of that ending, Python's writer would leave a carriage return unquoted."""

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def _csv(columns: Mapping[str, np.ndarray]) -> bytes:
    text = _Lines()
    writer = csv.writer(text)
    writer.writerow(map(as_cell, columns))
    writer.writerows(map(as_cell, row) for row in _each_row(columns, ""))
    return text.getvalue().encode()


def _parquet(columns: Mapping[str, np.ndarray]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})  # NaN -> null
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in columns if name not in integers] if len(table) else False,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),  # an index takes a few bytes in all
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
