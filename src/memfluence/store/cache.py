"""The cache of this machine: copies of remote segments, segments that could not be sent yet, and where data are.

    CACHE/segments/   immutable files by name; a name ends with the digest of the bytes, so it says all
    CACHE/unsent/     trials that were trained while the storage did not answer
    CACHE/data/       where on this machine the data of runs are, by their fingerprint; run.json says no directories

CACHE is $MEMFLUENCE_CACHE, or memfluence/ in $XDG_CACHE_HOME or ~/.cache. `segments/` may be deleted at any time; it
holds about $MEMFLUENCE_CACHE_SIZE bytes (10 GiB; 0 for none) at most, and the least recently used go first.
"""

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from memfluence.errors import InputError, MemfluenceError, StoreError, UnreachableError
from memfluence.records import digest
from memfluence.store.parquet import content_digest, read_bytes
from memfluence.store.places import Location, place_of, write_whole
from memfluence.store.run_file import RunInfo, say_record
from memfluence.store.segments import DamagedSegmentError, read_rows

_SIZE = 10 * 2**30
_NAME = re.compile(r"[A-Za-z0-9-]+-([0-9a-f]{32})\.parquet")


def cache_directory() -> Path:
    given = os.environ.get("MEMFLUENCE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given).expanduser() if given else Path(base) / "memfluence"


def remember_data(fingerprint: str, name: str) -> None:
    """Keep the name by which data can be loaded on this machine."""
    with suppress(MemfluenceError):  # a disk that takes nothing: then the user names the data when they are needed
        write_whole(_data_file(fingerprint), name.encode(errors="surrogateescape"))


def known_data(fingerprint: str) -> str | None:
    """The name that `remember_data` was given last; None if there was none."""
    try:
        return os.fsdecode(_data_file(fingerprint).read_bytes())
    except OSError:
        return None


def _data_file(fingerprint: str) -> Path:
    return cache_directory() / "data" / digest(fingerprint)  # it may be any text


def digest_in(name: str) -> str | None:
    """The digest that a file's name ends with; None for files that may change."""
    match = _NAME.fullmatch(name)
    return match and match[1]


class Cache:
    """Copies of immutable files. A disk that takes none costs time later, and nothing else."""

    def __init__(self) -> None:
        given = os.environ.get("MEMFLUENCE_CACHE_SIZE", str(_SIZE))
        if not given.isdigit():
            raise InputError(f"MEMFLUENCE_CACHE_SIZE must be a number of bytes, 0 for no cache. Got {given!r} instead.")
        self._size = int(given)
        self._directory = cache_directory() / "segments"
        self._added = self._size  # bytes since the directory was last measured; at first nothing is known

    def get(self, name: str) -> pa.Buffer | None:
        """The file's content, if a copy is here and is what its name says."""
        path = self._directory / name
        if not self._size:
            return None
        try:
            content = read_bytes(path)
            if content_digest(content) == digest_in(name):
                os.utime(path)
                return content
            path.unlink(missing_ok=True)
        except OSError:
            pass
        return None

    def put(self, name: str, content: pa.Buffer | bytes) -> None:
        size = len(memoryview(content))
        if size > self._size:
            return
        with suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            partial = self._directory / f".partial-{uuid.uuid4().hex}"
            partial.write_bytes(content)  # not synced: what a power cut leaves is found by its digest
            partial.replace(self._directory / name)
            self._added += size
            if self._added > self._size // 20:
                self._added = 0
                self._shrink()

    def _shrink(self) -> None:
        """Delete what was not used for longest until a tenth is free, if there is too much."""
        with os.scandir(self._directory) as entries:
            found = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries]
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found) if total > self._size else ():
            if total <= 0.9 * self._size:
                return
            Path(path).unlink(missing_ok=True)
            total -= size


def keep_unsent(run: Location, name: str, content: bytes) -> Path:
    """Write a segment to this machine's disk."""
    path = _directory(run) / name
    try:
        write_whole(path, content)
    except StoreError as error:
        raise StoreError(
            f"The storage of {run} does not answer, and its trials cannot be kept here: {error}"
        ) from error
    return path


def send_unsent(run: Location, info: RunInfo) -> RunInfo:
    """Publish what is kept here of the run; raises, saying where it is, if the storage still does not answer.

    What is damaged or of another run that was there stays where it is. The first segment of all says what is recorded.
    """
    kept = _kept(run, info)
    try:
        for path, _, columns in kept:
            info = say_record(run, info, columns)
            place_of(run).publish(run / "trials" / path.name, read_bytes(path).to_pybytes(), replace=True)
            path.unlink(missing_ok=True)
    except UnreachableError as error:
        count = sum(trials for path, trials, _ in kept if path.exists())
        raise UnreachableError(
            f"{error} {count} trained trial(s) are kept in {_directory(run)} on this machine; run the same command here"
            " to send them."
        ) from error
    return info


def _kept(run: Location, info: RunInfo) -> list[tuple[Path, int, list[str]]]:
    """The kept segments, how many trials each has, and its columns."""
    found = []
    for path in sorted(_directory(run).glob("[!.]*.parquet")):
        with suppress(DamagedSegmentError, FileNotFoundError):  # sent by another process just now
            rows = read_rows(path, info)
            found.append((path, len(rows), rows.table.column_names))
    return found


def _directory(run: Location) -> Path:
    return cache_directory() / "unsent" / digest(str(run))
