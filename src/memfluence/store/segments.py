"""One segment: an immutable Parquet file with one row per trial.

Columns: `trial` int64, `kind` int16; `mask`, `train_correct`, `test_correct` as fixed-size binary (bits packed as in
`store.parquet`); `accuracy_in`, `accuracy_out`, `test_accuracy`, `seconds` float64; `host`, `device` strings; `process`
int64, `finished` float64 (seconds since 1970) and `versions` strings (of libraries, see `versions_text`), which older
segments lack; and the optional columns of the run as fixed-size binary of little-endian values, whose type stands in
the field's metadata ("dtype"). The schema's metadata names the format and the run that the segment belongs to.

A segment's name ends with the BLAKE2 digest of its bytes, so a torn file or a single flipped bit anywhere, footer
included, is found before anything is parsed; Parquet's page checksums are written too, for other tools, and verified.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import MemfluenceError, shortened
from memfluence.records import Outcome
from memfluence.store.parquet import ParquetContent, as_array, content_digest, pack, packed_width
from memfluence.store.places import Location, place_of
from memfluence.store.run_file import MOST

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-[0-9a-f]+\.parquet")
_BITS = ("mask", "train_correct", "test_correct")
_TYPES = {
    "trial": pa.int64(),
    "kind": pa.int16(),
    **dict.fromkeys(("accuracy_in", "accuracy_out", "test_accuracy", "seconds", "finished"), pa.float64()),
    **dict.fromkeys(("host", "device", "versions"), pa.string()),
    "process": pa.int64(),
}
_EXTRA_TYPES = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)} - {"float8"}
_LATER = {
    "process": -1,
    "finished": float("nan"),
    "versions": "",
}  # columns that older segments lack, and what is said for them


class DamagedSegmentError(MemfluenceError):
    """The file is torn, altered, or not of this run."""


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment in memory: packed bits (rows, width) uint8, extras (rows, n) in their own type."""

    numbers: np.ndarray  # (rows,) int64
    kinds: np.ndarray  # (rows,) int16
    bits: Mapping[str, np.ndarray]  # mask, train_correct, test_correct: (rows, width) uint8
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    details: Mapping[str, np.ndarray] = field(default_factory=dict)  # accuracies, seconds, host, device, ...

    @property
    def finished(self) -> np.ndarray:
        """When each trial was finished (rows,) float64."""
        return self.details["finished"]


def versions_text(versions: Mapping[str, str]) -> str:
    """Versions of libraries as a segment says them of each trial: "numpy 2.4.6, python 3.11.7"; empty if not known."""
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def versions_in(text: str) -> dict[str, str]:
    """The inverse of `versions_text`."""
    return {name: version for name, _, version in (one.partition(" ") for one in text.split(", ")) if name}


def encode(
    outcomes: Sequence[Outcome], identity: Mapping[str, str], versions: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a segment of `outcomes`, made with these libraries, marked with the identity of the run."""
    arrays: dict[str, pa.Array] = {
        "trial": pa.array([outcome.trial for outcome in outcomes], pa.int64()),
        "kind": pa.array([outcome.kind for outcome in outcomes], pa.int16()),
    }
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]

    def add(name: str, array: pa.Array, metadata: dict[str, str] | None = None) -> None:
        arrays[name] = array
        fields.append(pa.field(name, array.type, nullable=False, metadata=metadata))

    for name in _BITS:
        stacked = np.stack([getattr(outcome, name) for outcome in outcomes])  # (rows, n) bool
        add(name, _binary(pack(stacked)), {"dtype": "bit", "length": str(stacked.shape[1])})
    for name in sorted(outcomes[0].extras):
        values = np.stack([outcome.extras[name] for outcome in outcomes])  # (rows, n)
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        add(name, _binary(little), {"dtype": values.dtype.name, "length": str(values.shape[1])})
    for name, numbers in _accuracies(outcomes).items():
        add(name, pa.array(numbers, pa.float64()))
    add("seconds", pa.array([outcome.seconds for outcome in outcomes], pa.float64()))
    add("host", pa.array([outcome.host for outcome in outcomes], pa.string()))
    add("device", pa.array([outcome.device for outcome in outcomes], pa.string()))
    add("process", pa.array([outcome.process for outcome in outcomes], pa.int64()))
    add("finished", pa.array([outcome.finished for outcome in outcomes], pa.float64()))
    add("versions", pa.array([versions_text(versions or {})] * len(outcomes), pa.string()))
    return encode_table(pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields)), identity)


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


def segment_name(numbers: Sequence[int], content: bytes) -> str:
    """The name of a segment of these trials."""
    return f"{min(numbers):09d}-{max(numbers):09d}-{len(numbers)}-{content_digest(content)}.parquet"


def has_trials_of(name: str, numbers: np.ndarray, others: Sequence[str]) -> bool:
    """Whether as many trials as the name says are among `numbers`, the first and the last among them.

    Names of other segments count for the trials between their first and their last one.
    """
    if (span := _span(name)) is None:
        return True
    first, last, count = span
    if any(other[0] <= last and first <= other[1] for other in map(_span, others) if other is not None):
        return True
    there = np.unique(numbers[(numbers >= first) & (numbers <= last)])
    return len(there) >= count and (there[0], there[-1]) == (first, last)


def _span(name: str) -> tuple[int, int, int] | None:
    """The first and last trial of a segment and how many it has, as its name says."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def read(
    path: Location,
    identity: Mapping[str, str],
    widths: Mapping[str, int],
    *,
    extras: Sequence[str] = (),
    content: pa.Buffer | None = None,
) -> Segment:
    """Read and verify a segment, or `content` read from it. `widths` gives n_train and n_test, for the bit columns."""
    table = read_table(path, identity, ["trial", "kind", "finished", *_BITS, *extras], content, widths)
    _check_numbers(table, path)
    bits = {name: _from_binary(table[name], np.dtype(np.uint8)) for name in _BITS}
    values = {}
    for name in extras:
        dtype, n = _dtype_of(table.schema.field(name), path), _length(name, widths)
        if table[name].type != pa.binary(n * dtype.itemsize):
            raise DamagedSegmentError(f"{path} holds rows of {table[name].type} as {name}, not {n} of {dtype}.")
        values[name] = _from_binary(table[name], dtype)
    return Segment(
        numbers=as_array(table["trial"]),
        kinds=as_array(table["kind"]),
        bits=bits,
        extras=values,
        details=_details(table, ("finished",)),
    )


def trials_in(
    path: Location,
    identity: Mapping[str, str],
    details: Sequence[str] = (),
    *,
    content: pa.Buffer | None = None,
    widths: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """The trial numbers of a segment, and some of its small columns, after verifying all of its bytes."""
    table = read_table(path, identity, ["trial", "kind", *details], content, widths)
    _check_numbers(table, path)
    return _details(table, ("trial", *details))


def _details(table: pa.Table, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Small columns of a segment; for those that an older one lacks, what `_LATER` says."""
    there = table.column_names
    return {name: as_array(table[name]) if name in there else np.full(table.num_rows, _LATER[name]) for name in names}


def read_table(
    path: Location,
    identity: Mapping[str, str],
    columns: Sequence[str] | None = None,
    content: pa.Buffer | None = None,
    widths: Mapping[str, int] | None = None,
) -> pa.Table:
    """These columns of a segment, or all, after verifying all of its bytes; those of `_LATER` may be missing.

    Types, numbers and, with `widths` (n_train and n_test), the columns of bits are what segments have: a digest says
    who a file is, not that it is well made.
    """
    if content is None:
        content = place_of(path).read(path)
    if content_digest(content) != path.stem.rpartition("-")[2]:
        raise DamagedSegmentError(f"{path} is torn or altered: its bytes do not match the digest in its name.")
    try:
        with ParquetContent(content) as file:
            found = file.schema.metadata or {}
            for key, value in identity.items():
                there = found.get(key.encode(), b"").decode(errors="replace")
                if there != value:
                    raise DamagedSegmentError(
                        f"{path} belongs to another run: its {key} is {shortened(there)}, not {shortened(value)}."
                    )
            names = file.schema.names
            wanted = names if columns is None else [name for name in columns if name in names or name not in _LATER]
            if lacking := sorted({"trial", "kind", *_BITS, *wanted}.difference(names)):
                raise DamagedSegmentError(f"{path} is no segment: it has no column {lacking[0]!r}.")
            _check_types(file.schema, widths, path)
            table = file.read(wanted)
    except (pa.ArrowException, OSError) as error:
        raise DamagedSegmentError(f"{path} cannot be read as Parquet: {_begin(error)}.") from error
    if not table.num_rows:
        raise DamagedSegmentError(f"{path} is no segment: it has no trials.")
    if len(np.unique(as_array(table["trial"]))) < table.num_rows:
        raise DamagedSegmentError(f"{path} is no segment: it has a trial twice.")
    for name in set(_BITS).intersection(table.column_names) if widths else ():
        _check_padding(table[name], name, _length(name, widths or {}), path)
    return table


def _begin(error: Exception) -> str:
    """The beginning of what Arrow says, which may quote the file and its own source."""
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= 120 else f"{text[:117]}..."


def _length(name: str, widths: Mapping[str, int]) -> int:
    """Of how many examples a column of a segment speaks."""
    return widths["n_test" if name.startswith("test") else "n_train"]


def _check_types(schema: pa.Schema, widths: Mapping[str, int] | None, path: Location) -> None:
    for name, kind in zip(schema.names, schema.types):
        expected = _TYPES.get(name)
        if name in _BITS and widths is not None:
            expected = pa.binary(packed_width(_length(name, widths)))
        if expected is not None and kind != expected:
            raise DamagedSegmentError(f"{path} holds rows of {kind!s:.60} as {name}, not of {expected}.")


def _check_numbers(table: pa.Table, path: Location) -> None:
    """Refuse numbers of trials and of kinds that no run has."""
    numbers, kinds = as_array(table["trial"]), as_array(table["kind"])
    if numbers.min() < 0 or numbers.max() >= MOST or kinds.min() < 0:
        raise DamagedSegmentError(f"{path} has trials, or kinds of trial, whose numbers no run has.")


def _check_padding(column: Any, name: str, n: int, path: Location) -> None:
    last = _from_binary(column, np.dtype(np.uint8))[:, -1]  # (rows,)
    if n % 8 and (last >> (n % 8)).any():
        raise DamagedSegmentError(f"{path} has bits in {name!r} beyond the last of {n} examples.")


def _dtype_of(field: pa.Field, path: Location) -> np.dtype[Any]:
    """The type of an optional column's values."""
    name = (field.metadata or {}).get(b"dtype", b"").decode(errors="replace")
    if name not in _EXTRA_TYPES:
        raise DamagedSegmentError(f"{path} does not say of what type {field.name} is: {shortened(name)}.")
    dtype: np.dtype[Any] = np.dtype(name).newbyteorder("<")
    return dtype


def _binary(rows: np.ndarray) -> pa.Array:
    """A 2-d array as one fixed-size binary value per row."""
    width = rows.shape[1] * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
    )


def _from_binary(column: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A column of fixed-size binary as (rows, n) of the type."""
    size = column.type.byte_width
    parts = [
        np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * size, chunk.offset * size)
        .view(dtype)
        .reshape(len(chunk), -1)
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate(parts) if parts else np.empty((0, size // dtype.itemsize), dtype)


def _accuracies(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Share right among kept, left-out and test examples; NaN of an empty set."""

    def mean(values: np.ndarray) -> float:
        return float(values.mean()) if len(values) else float("nan")

    return {
        "accuracy_in": [mean(outcome.train_correct[outcome.mask]) for outcome in outcomes],
        "accuracy_out": [mean(outcome.train_correct[~outcome.mask]) for outcome in outcomes],
        "test_accuracy": [mean(outcome.test_correct) for outcome in outcomes],
    }
