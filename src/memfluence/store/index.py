"""The index (`RUN/.index`): small columns of segments that were verified before, so that `status` reads them once.

The index is only a cache: without it, `status` takes longer and says the same. A segment is known by its name, size and
time of last change. A segment that changed within the last seconds is not entered, because the same time could stand
for two contents; so every entry was verified after the last change of its segment, as far as the file system tells.
Scores and `verify` never look here: they read every byte each time.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memfluence.errors import StoreError
from memfluence.store.parquet import ParquetContent, content_digest, read_bytes
from memfluence.store.places import publish
from memfluence.store.run_file import RunInfo, plain_json
from memfluence.store.segments import Rows, join_rows, read_rows

_NUMBERS = ("accuracy_in", "accuracy_out", "test_accuracy", "seconds")
INDEXED = (*_NUMBERS, "host", "device", "versions", "process", "finished")
_COLUMNS = ["trial", *INDEXED]
_FILE = ".index"
_VERSION = 3  # 2 had its texts apart from the columns, 1 no versions of libraries
_UNSETTLED = 2 * 10**9  # nanoseconds: more than the steps in which any file system counts time

Entry = tuple[tuple[int, int], Rows]  # a segment's size and time of last change, and its columns


class SegmentIndex:
    """The index of one run; `save` it after use."""

    def __init__(self, run: Path, info: RunInfo) -> None:
        self._path, self._info = run / _FILE, info
        self._known: dict[str, Entry] = {}
        with suppress(OSError, ValueError, TypeError, KeyError, pa.ArrowException):
            self._known = _decoded(self._path, info)
        self._used: dict[str, Entry] = {}
        self._has_read = False  # whether a segment had to be read

    def rows(self, path: Any, read: Callable[[], pa.Buffer]) -> Rows:
        """`trial` and the columns of INDEXED of a segment, from the index or by reading and verifying it."""
        stamp = _stamp(path)
        known = self._known.get(path.name)
        if known is None or known[0] != stamp:
            self._has_read = True
            known = stamp, Rows(read_rows(path, self._info, INDEXED, content=read()).table.select(_COLUMNS))
            if not stamp[1] < time.time_ns() - _UNSETTLED or _stamp(path) != stamp:
                return known[1]
        self._used[path.name] = known
        return known[1]

    def save(self) -> None:
        """Keep what was used, if it is not what is there."""
        if self._used.keys() != self._known.keys() or self._has_read:
            with suppress(StoreError):  # a read-only or full disk
                publish(self._path, _encoded(self._used, self._info), replace=True)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _encoded(entries: Mapping[str, Entry], info: RunInfo) -> bytes:
    """A digest in 32 letters, then a Parquet file: the rows of all segments, and in its metadata whose they are."""
    segments = [[name, *stamp, len(rows)] for name, (stamp, rows) in entries.items()]
    table = join_rows([rows for _, rows in entries.values()]).table.combine_chunks() if entries else pa.table({})
    metadata = json.dumps({"version": _VERSION, "run": info.identity, "segments": segments})
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"index": metadata}), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content_digest(content).encode() + content


def _decoded(path: Path, info: RunInfo) -> dict[str, Entry]:
    """The inverse; raises ValueError, or what reading raises, if this is not the index of this run."""
    content = read_bytes(path)
    if content_digest(content[32:]) != content[:32].to_pybytes().decode(errors="replace"):
        raise ValueError("altered")
    with ParquetContent(content[32:]) as file:
        metadata = plain_json((file.schema.metadata or {}).get(b"index", b""))
        if (metadata["version"], metadata["run"]) != (_VERSION, info.identity):
            raise ValueError("of another run")
        table = file.read(_COLUMNS if metadata["segments"] else [])
    entries, first = {}, 0
    for name, size, changed, rows in metadata["segments"]:
        entries[name] = (size, changed), Rows(table.slice(first, rows))
        first += rows
    if first != table.num_rows:
        raise ValueError("not the rows of its segments")
    return entries
