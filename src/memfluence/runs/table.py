"""`Table`: what a run says in named columns, as rows, as a file of other people's tools, or as a pandas DataFrame."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.errors import InputError
from memfluence.npzfiles import npz_bytes
from memfluence.store import write_whole

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 10_000
ID_OF = {"index": "id", "train_index": "train_id", "test_index": "test_id"}  # columns of positions, and of ids
_RUNS = re.compile(r"'*[=+\-@\t\r]")  # beginnings of what a spreadsheet calculates, with the apostrophes that stop it
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name, and notes about all of them, such as `expected_by_chance`.

    A DataFrame of it is indexed by the column `index`, if one is named.
    """

    columns: Mapping[str, np.ndarray]
    notes: Mapping[str, Any] = field(default_factory=dict)
    index: str | None = None

    @classmethod
    def of_examples(
        cls, columns: Mapping[str, np.ndarray], ids: tuple[np.ndarray, np.ndarray], notes: Mapping[str, Any] = {}
    ) -> "Table":
        """A table about examples with these ids: those of pairs beside their positions, those of rows at the end."""
        found: dict[str, np.ndarray] = {}
        for name, values in columns.items():
            found[name] = values
            if name in ID_OF and name != "index":
                found[ID_OF[name]] = ids[name == "test_index"][values]
        if "index" not in columns:
            return cls(found, notes)
        return cls({**found, "id": ids[0][columns["index"]]}, notes, index="id")

    def __len__(self) -> int:
        return max((len(values) for values in self.columns.values()), default=0)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def take(self, rows: Any) -> "Table":
        """Some rows: a slice, or indices in the order wanted."""
        return Table({name: values[rows] for name, values in self.columns.items()}, self.notes, self.index)

    def frame(self) -> "pd.DataFrame":
        """A DataFrame, with the notes as its `attrs`."""
        import pandas as pd

        found = pd.DataFrame(dict(self.columns), None if self.index is None else pd.Index(self.columns[self.index]))
        found.attrs = dict(self.notes)
        return found

    def rows(self) -> Iterator[dict[str, object]]:
        """One JSON-able dict per row, as they are asked for; what cannot be estimated is None."""
        for values in self._each_row(None):
            yield dict(zip(self.columns, values))

    def write(self, path: Path) -> None:
        """Write the columns to `path` in the format that its ending names: the same bytes for the same values."""
        writers = {".csv": Table._csv, ".parquet": Table._parquet, ".npz": Table._npz}
        if path.suffix.lower() not in writers:
            raise InputError(f"{path} must end in .csv, .parquet or .npz, which says the format.")
        write_whole(path, writers[path.suffix.lower()](self))

    def _each_row(self, unknown: object) -> Iterator[tuple[object, ...]]:
        """Rows as Python's own values, some at a time, since those take many times the memory of arrays."""
        for start in range(0, len(self), ROWS_AT_ONCE):
            some = (values[start : start + ROWS_AT_ONCE].tolist() for values in self.columns.values())
            known = ([unknown if isinstance(one, float) and one != one else one for one in part] for part in some)
            yield from zip(*known)

    def _csv(self) -> bytes:
        text = _Lines()
        writer = csv.writer(text)
        writer.writerow(map(_as_cell, self.columns))
        writer.writerows(map(_as_cell, row) for row in self._each_row(""))
        return text.getvalue().encode()

    def _npz(self) -> bytes:
        return npz_bytes(self.columns)

    def _parquet(self) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        arrays = {name: pa.array(values, from_pandas=True) for name, values in self.columns.items()}  # NaN -> null
        table = pa.table(arrays)
        integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
        pq.write_table(
            table,
            sink,
            compression="zstd",
            use_dictionary=[name for name in self.columns if name not in integers] if len(table) else False,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),  # an index takes a few bytes in all
        )
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


class _Lines(io.StringIO):
    """Lines that end in a line feed. Told of that ending, Python's writer would leave a carriage return unquoted."""

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def _as_cell(value: object) -> object:
    """A value as a CSV file has it: a text that a spreadsheet would run as a formula gets an apostrophe before it.

    Numbers, and texts that are numbers, stay as they are. `from_cell` gives the text back.
    """
    return f"'{value}" if isinstance(value, str) and _RUNS.match(value) and not _NUMBER.fullmatch(value) else value


def from_cell(text: str) -> str:
    """The text that a cell of a CSV file stands for."""
    return text[1:] if text.startswith("'") and _RUNS.match(text) else text
