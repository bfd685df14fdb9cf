"""Segments: immutable Parquet files with one row per trial; and `Rows`, which is what was read of them.

Columns: `trial` int64, `kind` int16; `mask`, `train_correct`, `test_correct` as fixed-size binary (bits packed as in
`store.parquet`); `accuracy_in`, `accuracy_out`, `test_accuracy` (mean scores, where the learner has some of its own)
and `seconds` float64; `host`, `device` strings; `process`
int64, `finished` float64 (seconds since 1970) and `versions` strings (of libraries, see `versions_text`), which older
segments lack; and the optional columns of the run as fixed-size binary of little-endian values, whose type stands in
the field's metadata ("dtype"). The schema's metadata names the format and the run that the segment belongs to.

A segment's name ends with the BLAKE2 digest of its bytes, so a torn file or a single flipped bit anywhere, footer
included, is found before anything is parsed; Parquet's page checksums are written too, for other tools, and verified.

Several segments may have records of one trial. Equal records count once. Records that differ are no damage: a learner
that ignores its seed gives them, or two kinds of device, when two processes run one trial. The record that was finished
first counts, by the clocks of the hosts; a record that does not say when (of an older version) goes before those that
do. Of two that were finished at the same time the one with the lower digest (`Rows.records`) counts. So the choice
depends on the records alone, never on the segments that they are in or on the order in which these are read, and a
record that is finished later does not change it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import LearnerError, MemfluenceError, shortened
from memfluence.records import EXTRA_COLUMNS, Outcome, Trials
from memfluence.store.parquet import ParquetContent, as_array, as_column, content_digest, pack, packed_width
from memfluence.store.places import Location, place_of
from memfluence.store.run_file import MOST, RunInfo

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-[0-9a-f]+\.parquet")
BITS = ("mask", "train_correct", "test_correct")
_TYPES = {
    "trial": pa.int64(),
    "kind": pa.int16(),
    **dict.fromkeys(("accuracy_in", "accuracy_out", "test_accuracy", "seconds", "finished"), pa.float64()),
    **dict.fromkeys(("host", "device", "versions"), pa.string()),
    "process": pa.int64(),
}
_EXTRAS = {name for names in EXTRA_COLUMNS.values() for name in names}
_EXTRA_TYPES = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {"float8"}
_LATER: dict[str, float | str] = {
    "process": -1,
    "finished": float("nan"),
    "versions": "",
}  # what is said for columns that older segments lack


class DamagedSegmentError(MemfluenceError):
    """The file is torn, altered, or not of this run. `identity` is that of the run it belongs to, if it is whole."""

    def __init__(self, message: str, identity: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.identity = identity


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, or not of this run. `identity`: of the run that a whole segment is of."""

    path: Location
    reason: str
    identity: Mapping[str, str] | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one or several segments of a run, in the order in which they stand there; all columns, or some."""

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
    def records(self) -> list[bytes]:
        """For each row 16 bytes that tell its result from others: kind, mask, outcomes and optional columns.

        Where and when a trial was made is no part of its result.
        """
        extras = sorted(_EXTRAS.intersection(self.table.column_names))
        kinds = self.kinds.astype("<i2").view(np.uint8).reshape(len(self), 2)
        together = np.ascontiguousarray(np.hstack([kinds, *map(self.packed, (*BITS, *extras))]))  # (rows, bytes)
        return [hashlib.blake2b(row, digest_size=16).digest() for row in together]

    @property
    def precedence(self) -> list[tuple[float, bytes]]:
        """For each row a value; of several records of a trial the one with the lowest counts."""
        return [_precedence(when, record) for when, record in zip(self.finished.tolist(), self.records)]

    def packed(self, name: str) -> np.ndarray:
        """A column of bits, or of optional values, as (rows, bytes) uint8."""
        column = self.table[name]
        width = column.type.byte_width
        parts = [
            np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width).reshape(-1, width)
            for chunk in column.chunks
            if len(chunk)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, width), np.uint8), *parts])

    def extra(self, name: str) -> np.ndarray:
        """An optional column as (rows, n) of its type."""
        return self.packed(name).view(np.dtype(_said_type(self.table.schema.field(name))).newbyteorder("<"))

    def take(self, positions: np.ndarray) -> "Rows":
        """The rows at these positions, in their order."""
        return Rows(self.table.take(as_column(positions)))


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of one layout, one part after the other."""
    return Rows(pa.concat_tables([_plain(part.table) for part in parts], promote_options="default"))


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


def _precedence(finished: float, record: bytes) -> tuple[float, bytes]:
    return (finished if finished == finished else -np.inf), record


def choose(
    parts: Sequence[tuple[Location, Rows]], records_in: Callable[[Location], Mapping[int, bytes]]
) -> tuple[np.ndarray, tuple[int, ...]]:
    """The rows that count, and the trials of which there are different records.

    Rows are positions (trials,) in all parts, one part after the other, in ascending order of their trials.
    `records_in` gives the digests of a segment's records by trial; it is asked of segments that share trials alone.
    """
    numbers = np.concatenate([np.empty(0, np.int64), *(rows.numbers for _, rows in parts)])  # (rows,)
    order = np.argsort(numbers, kind="stable")
    trials, starts = np.unique(numbers[order], return_index=True)  # (trials,) each
    chosen, differing = order[starts], []
    if len(trials) < len(numbers):
        finished = np.concatenate([rows.finished for _, rows in parts]).tolist()
        segment = np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts]).tolist()
        records = cache(lambda part: records_in(parts[part][0]))
        for at, copies in enumerate(np.split(order, starts[1:])):
            if len(copies) > 1:
                trial = int(trials[at])
                ranked = [
                    (_precedence(finished[row], records(segment[row]).get(trial, b"")), row) for row in copies.tolist()
                ]
                chosen[at] = min(ranked)[1]
                if len({record for (_, record), _ in ranked}) > 1:
                    differing.append(trial)
    return chosen, tuple(differing)


def small_columns(parts: Sequence[Rows], chosen: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of numbers or texts of the chosen rows of all parts; there is a part."""
    table = pa.concat_tables([part.table.select(names) for part in parts], promote_options="default").combine_chunks()
    return {name: as_array(table[name])[chosen] for name in names}


def trials_of(parts: Sequence[Rows], chosen: np.ndarray, info: RunInfo) -> Trials:
    """The table of the chosen rows of all parts."""

    def taken(columns: Sequence[np.ndarray]) -> Any:
        return np.concatenate(columns)[chosen]

    def bits(name: str) -> Any:  # one column at a time: at most the segments are held, and the largest column twice
        width = packed_width(_length(name, info))
        return taken([np.empty((0, width), np.uint8), *(part.packed(name) for part in parts)])

    numbers = taken([np.empty(0, np.int64), *(part.numbers for part in parts)])
    kinds = taken([np.empty(0, np.int16), *(part.kinds for part in parts)])
    mask, train_correct, test_correct = map(bits, BITS)
    return Trials(
        numbers, kinds, mask, train_correct, test_correct, info.n_train, info.n_test, info.repeats, info.block
    )


def versions_text(versions: Mapping[str, str]) -> str:
    """Versions of libraries as a segment says them of each trial: "numpy 2.4.6, python 3.11.7"; empty if not known."""
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def versions_in(text: str) -> dict[str, str]:
    """The inverse of `versions_text`."""
    return {name: version for name, _, version in (one.partition(" ") for one in text.split(", ")) if name}


def extras_of(outcomes: Sequence[Outcome]) -> set[str]:
    """The optional columns that every one of these outcomes has."""
    return set.intersection(*(set(outcome.extras) for outcome in outcomes))


def segment_of(
    outcomes: Sequence[Outcome], info: RunInfo, versions: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """The name and the bytes of a segment of these outcomes, with the optional columns that the run records."""
    content = encode(outcomes, info if info.says_record else info.recording(extras_of(outcomes)), versions)
    return segment_name([outcome.trial for outcome in outcomes], content), content


def encode(outcomes: Sequence[Outcome], info: RunInfo, versions: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a segment of `outcomes`, made with these libraries, marked with the identity of the run.

    Margins that an outcome lacks are NaN: nobody asked for them, and the learner gave them for other trials.
    """
    for outcome in outcomes:
        if outcome.has_scores != (info.outcome == "score"):
            raise LearnerError(
                f"The run records {', '.join(info.record) or 'right and wrong alone'}, and trial {outcome.trial} gives"
                f" {', '.join(outcome.extras) or 'right and wrong'}; a learner must give the same of all trials."
            )
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []

    def add(name: str, array: pa.Array, metadata: dict[str, str] | None = None) -> None:
        arrays.append(array)
        fields.append(pa.field(name, array.type, nullable=False, metadata=metadata))

    def add_each(*names: str) -> None:
        for name in names:
            add(name, pa.array([getattr(outcome, name) for outcome in outcomes], _TYPES[name]))

    add_each("trial", "kind")
    for name in BITS:
        stacked = np.stack([getattr(outcome, name) for outcome in outcomes])  # (rows, n) bool
        add(name, _binary(pack(stacked)), {"dtype": "bit", "length": str(stacked.shape[1])})
    for name in sorted({*outcomes[0].extras, *EXTRA_COLUMNS["margin"]}.intersection(info.columns)):
        lacking = {name: np.full(_length(name, info), np.nan, np.float16)} if name in EXTRA_COLUMNS["margin"] else {}
        values = np.stack([{**lacking, **outcome.extras}[name] for outcome in outcomes])  # (rows, n)
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        add(name, _binary(little), {"dtype": values.dtype.name, "length": str(values.shape[1])})
    means = zip(*(outcome.means for outcome in outcomes))
    for name, numbers in zip(("accuracy_in", "accuracy_out", "test_accuracy"), means):
        add(name, pa.array(numbers, pa.float64()))
    add_each("seconds", "host", "device", "process", "finished")
    add("versions", pa.array([versions_text(versions or {})] * len(outcomes), pa.string()))
    return encode_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), info.identity)


def encode_table(table: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a segment with these rows; `metadata` holds the identity of the run."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(dict(metadata)),
        sink,
        compression="zstd",
        use_dictionary=False,
        write_statistics=["trial"],
        write_page_checksum=True,
        store_schema=True,
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _binary(rows: np.ndarray) -> pa.Array:
    """A 2-d array as one fixed-size binary value per row."""
    width = rows.shape[1] * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
    )


def segment_name(numbers: Sequence[int], content: bytes) -> str:
    """The name of a segment of these trials."""
    return f"{min(numbers):09d}-{max(numbers):09d}-{len(numbers)}-{content_digest(content)}.parquet"


def has_trials_of(name: str, numbers: np.ndarray, others: Sequence[str]) -> bool:
    """True if as many trials as the name says are among `numbers`, the first and the last among them.

    Names of other segments count for the trials between their first and their last one.
    """
    if (span := _span(name)) is None:
        return True
    first, last, count = span
    if any(other[0] <= last and first <= other[1] for other in map(_span, others) if other is not None):
        return True
    there = np.unique(numbers[(numbers >= first) & (numbers <= last)])
    return len(there) >= count and (there[0], there[-1]) == (first, last)


def overlapping(names: Sequence[str]) -> list[str]:
    """Segments that may share trials with others, by the first and the last trial in their names."""
    spans = [_span(name) for name in names]
    if None in spans:
        return list(names)
    found: set[str] = set()
    last, holder = -1, ""  # of those that begin earlier
    for (first, end, _), name in sorted(zip(spans, names)):  # type: ignore[misc]
        if first <= last:
            found |= {name, holder}
        if end > last:
            last, holder = end, name
    return [name for name in names if name in found]


def is_in_span(name: str, numbers: np.ndarray) -> bool:
    """True if no trial is outside those that the name of its segment says."""
    return (span := _span(name)) is None or bool(span[0] <= numbers.min() and numbers.max() <= span[1])


def _span(name: str) -> tuple[int, int, int] | None:
    """The first and last trial of a segment and how many it has, as its name says."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def read_rows(
    path: Location, info: RunInfo, columns: Sequence[str] | None = None, content: pa.Buffer | None = None
) -> Rows:
    """The rows of a segment, or of `content` read from it, after verifying all of its bytes.

    All columns as they are there, also of trials that no run can have (`repair` keeps the others); or only `trial`,
    `kind` and these `columns`, of which those of `_LATER` may be missing. A digest says that a file is as it was
    written, not that it is well made: types and values are checked.
    """
    if content is None:
        content = place_of(path).read(path)
    if content_digest(content) != path.stem.rpartition("-")[2]:
        raise DamagedSegmentError(f"{path} is torn or altered: its bytes do not match the digest in its name.")
    try:
        with ParquetContent(content) as file:
            _check_identity(file.schema.metadata or {}, info, path)
            names = file.schema.names
            wanted = names if columns is None else dict.fromkeys(("trial", "kind", *columns))
            later = [name for name in wanted if name in _LATER and name not in names]
            if lacking := sorted({"trial", "kind", *BITS, *wanted}.difference(names, later)):
                raise DamagedSegmentError(f"{path} is no segment: it has no column {lacking[0]!r}.")
            _check_types(file.schema, info, path)
            table = file.read([name for name in wanted if name not in later])
    except (pa.ArrowException, OSError) as error:
        raise DamagedSegmentError(f"{path} cannot be read as Parquet: {_begin(error)}.") from error
    for name in later:
        table = table.append_column(name, _column_of(_LATER[name], table.num_rows))
    _check_values(rows := Rows(table), info, path)
    if columns is not None and (rows.numbers.min() < 0 or rows.numbers.max() >= MOST or rows.kinds.min() < 0):
        raise DamagedSegmentError(f"{path} has trials, or kinds of trial, whose numbers no run has.")
    return rows


def _column_of(value: float | str, rows: int) -> pa.Array:
    """The same number, or an empty text, in each row; made of buffers, because `pa.repeat` imports pandas."""
    if isinstance(value, str):
        return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(bytes(4 * (rows + 1))), pa.py_buffer(b"")])
    return as_column(np.full(rows, value))


def _begin(error: Exception) -> str:
    """The beginning of what Arrow says, which may quote the file and its own source."""
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= 120 else f"{text[:117]}..."


def _length(name: str, info: RunInfo) -> int:
    """The number of examples that a column of a segment is about."""
    return info.n_test if name.startswith("test") else info.n_train


def _check_identity(found: Mapping[bytes, bytes], info: RunInfo, path: Location) -> None:
    there = {key: found.get(key.encode(), b"").decode(errors="replace") for key in info.identity}
    for key, value in info.identity.items():
        if there[key] != value:
            raise DamagedSegmentError(
                f"{path} belongs to another run: its {key} is {shortened(there[key])}, not {shortened(value)}.", there
            )


def _check_types(schema: pa.Schema, info: RunInfo, path: Location) -> None:
    expected = _TYPES | {name: pa.binary(packed_width(_length(name, info))) for name in BITS}
    for column in schema:
        if column.name in _EXTRAS:
            if (said := _said_type(column)) not in _EXTRA_TYPES:
                raise DamagedSegmentError(f"{path} does not say of what type {column.name} is: {shortened(said)}.")
            if column.type != pa.binary((n := _length(column.name, info)) * np.dtype(said).itemsize):
                raise DamagedSegmentError(f"{path} holds rows of {column.type} as {column.name}, not {n} of {said}.")
        elif column.type != expected.get(column.name, column.type):
            what = expected[column.name]
            raise DamagedSegmentError(f"{path} holds rows of {column.type!s:.60} as {column.name}, not of {what}.")


def _said_type(field: pa.Field) -> str:
    """The type of an optional column's values, as the segment says it."""
    return (field.metadata or {}).get(b"dtype", b"").decode(errors="replace")  # type: ignore[no-any-return]


def _check_values(rows: Rows, info: RunInfo, path: Location) -> None:
    """Refuse a segment of no trials, a trial that is there twice, and bits beyond the last example."""
    if not len(rows):
        raise DamagedSegmentError(f"{path} is no segment: it has no trials.")
    if len(np.unique(rows.numbers)) < len(rows):
        raise DamagedSegmentError(f"{path} is no segment: it has a trial twice.")
    for name in set(BITS).intersection(rows.table.column_names):
        n = _length(name, info)
        if n % 8 and (rows.packed(name)[:, -1] >> (n % 8)).any():
            raise DamagedSegmentError(f"{path} has bits in {name!r} beyond the last of {n} examples.")
