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
from memfluence.store._arrow import as_array, as_column, content_digest, open_parquet, read_bytes, read_columns
from memfluence.store._files import publish
from memfluence.store.segments import trials_in

__all__ = ["INDEXED", "SegmentIndex"]

INDEXED = ("accuracy_in", "accuracy_out", "test_accuracy", "seconds", "host", "device", "process", "finished")
_FILE = ".index"
_VERSION = 1
_UNSETTLED = 2 * 10**9  # nanoseconds: more than the steps in which any file system counts time

Columns = dict[str, np.ndarray]
Stamp = tuple[int, int]  # size and time of last change


class SegmentIndex:
    """The index of one run; `save` it after use."""

    def __init__(self, run: Path, identity: Mapping[str, str]) -> None:
        self._path, self._identity = run / _FILE, dict(identity)
        self._known: dict[str, tuple[Stamp, Columns]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            self._known = _decoded(self._path, self._identity)
        self._used: dict[str, tuple[Stamp, Columns]] = {}
        self.has_read = False  # whether a segment had to be read

    def columns(self, path: Any, read: Callable[[], pa.Buffer]) -> Columns:
        """`trial` and the columns of INDEXED of a segment, from the index or by reading and verifying it."""
        stamp = _stamp(path)
        known = self._known.get(path.name)
        if known is None or known[0] != stamp:
            self.has_read = True
            known = stamp, trials_in(path, self._identity, INDEXED, content=read())
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
    """The inverse; raises whatever it likes if this is not the index of this run."""
    content = read_bytes(path)
    if content_digest(content[32:]) != content[:32].to_pybytes().decode():
        raise ValueError("altered")
    with open_parquet(content[32:]) as file:
        metadata: dict[str, Any] = json.loads(file.schema_arrow.metadata[b"index"])
        if metadata["version"] != _VERSION or metadata["run"] != identity:
            raise ValueError("of another run")
        table = read_columns(file, file.schema_arrow.names)
    columns = {name: as_array(table[name]) for name in table.column_names}
    for name, known in metadata["texts"].items():
        columns[name] = np.array(known, dtype=str)[columns[name]]
    entries, first = {}, 0
    for name, size, changed, rows in metadata["segments"]:
        entries[name] = (size, changed), {key: values[first : first + rows] for key, values in columns.items()}
        first += rows
    return entries
