"""`RUN/.index`: the small columns of segments that were verified before, so that `status` need not read them again.

It is only a cache: whoever cannot read or write it, or deletes it, loses time and nothing else. A segment is known by
its name, size and time of last change. One that changed within the last seconds is not entered, because the same time
could stand for two contents; so what is entered was verified after its last change, as far as the file system tells.
Scores and `verify` never look here: they read every byte each time.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import StoreError
from memfluence.store.parquet import ParquetContent, as_array, as_column, content_digest, read_bytes
from memfluence.store.places import publish
from memfluence.store.run_file import plain_json
from memfluence.store.segments import trials_in

_TEXTS = ("host", "device", "versions")
INDEXED = ("accuracy_in", "accuracy_out", "test_accuracy", "seconds", *_TEXTS, "process", "finished")
_FILE = ".index"
_VERSION = 2  # 1 had no versions of libraries
_UNSETTLED = 2 * 10**9  # nanoseconds: more than the steps in which any file system counts time

Columns = dict[str, np.ndarray]
Stamp = tuple[int, int]  # size and time of last change


class SegmentIndex:
    """The index of one run; `save` it after use."""

    def __init__(self, run: Path, identity: Mapping[str, str], widths: Mapping[str, int]) -> None:
        self._path, self._identity, self._widths = run / _FILE, dict(identity), dict(widths)
        self._known: dict[str, tuple[Stamp, Columns]] = {}
        with suppress(OSError, ValueError, pa.ArrowException):
            self._known = _decoded(self._path, self._identity)
        self._used: dict[str, tuple[Stamp, Columns]] = {}
        self.has_read = False  # whether a segment had to be read

    def columns(self, path: Any, read: Callable[[], pa.Buffer]) -> Columns:
        """`trial` and the columns of INDEXED of a segment, from the index or by reading and verifying it."""
        stamp = _stamp(path)
        known = self._known.get(path.name)
        if known is None or known[0] != stamp:
            self.has_read = True
            known = stamp, trials_in(path, self._identity, INDEXED, content=read(), widths=self._widths)
            if not stamp[1] < time.time_ns() - _UNSETTLED or _stamp(path) != stamp:
                return known[1]
        self._used[path.name] = known
        return known[1]

    def save(self) -> None:
        """Keep what was used, if it is not what is there."""
        if self._used.keys() != self._known.keys() or self.has_read:
            with suppress(StoreError):  # a read-only or full disk
                publish(self._path, _encoded(self._used, self._identity), replace=True)


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _encoded(entries: Mapping[str, tuple[Stamp, Columns]], identity: Mapping[str, str]) -> bytes:
    """A digest in 32 letters, then a Parquet file: the rows of all segments, and in its metadata whose they are.

    Strings are positions in lists that the metadata has.
    """
    segments = [[name, *stamp, len(columns["trial"])] for name, (stamp, columns) in entries.items()]
    columns: Columns = {}
    texts: dict[str, list[str]] = {}
    for name in ("trial", *INDEXED) if entries else ():
        columns[name] = np.concatenate([part[name] for _, part in entries.values()])
        if columns[name].dtype.kind == "U":
            known, columns[name] = np.unique(columns[name], return_inverse=True)
            texts[name] = known.tolist()
    metadata = {"version": _VERSION, "run": dict(identity), "segments": segments, "texts": texts}
    table = pa.table({name: as_column(values) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"index": json.dumps(metadata)}), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content_digest(content).encode() + content


def _decoded(path: Path, identity: Mapping[str, str]) -> dict[str, tuple[Stamp, Columns]]:
    """The inverse; raises ValueError, or what the file system or Arrow raise, if this is not the index of this run."""
    content = read_bytes(path)
    if content_digest(content[32:]) != content[:32].to_pybytes().decode(errors="replace"):
        raise ValueError("altered")
    with ParquetContent(content[32:]) as file:
        metadata = plain_json((file.schema.metadata or {}).get(b"index", b""))
        _check(metadata, identity)
        table = file.read(file.schema.names)
    columns = {name: as_array(table[name]) for name in table.column_names}
    if sum(rows for *_, rows in metadata["segments"]) != table.num_rows or columns.keys() != _names(table.num_rows):
        raise ValueError("not the rows of its segments")
    for name in _TEXTS if columns else ():
        texts, positions = np.array(metadata["texts"].get(name, []), dtype=str), columns[name]
        if positions.dtype.kind != "i" or not 0 <= positions.min() <= positions.max() < len(texts):
            raise ValueError("not positions in its texts")
        columns[name] = texts[positions]
    if any(values.dtype.kind == "U" for name, values in columns.items() if name not in _TEXTS):
        raise ValueError("texts for numbers")
    entries, first = {}, 0
    for name, size, changed, rows in metadata["segments"]:
        entries[name] = (size, changed), {key: values[first : first + rows] for key, values in columns.items()}
        first += rows
    return entries


def _names(rows: int) -> set[str]:
    return {"trial", *INDEXED} if rows else set()


def _check(metadata: Any, identity: Mapping[str, str]) -> None:
    """Refuse what is not the metadata of an index of this run."""
    if not isinstance(metadata, dict) or (metadata.get("version"), metadata.get("run")) != (_VERSION, dict(identity)):
        raise ValueError("of another run")
    segments, texts = metadata.get("segments"), metadata.get("texts")
    is_entry = isinstance(segments, list) and all(
        isinstance(one, list) and list(map(type, one)) == [str, int, int, int] and one[3] >= 0 for one in segments
    )
    is_text = isinstance(texts, dict) and all(
        isinstance(known, list) and all(isinstance(text, str) for text in known) for known in texts.values()
    )
    if not is_entry or not is_text:
        raise ValueError("not as it was written")
