"""What the store asks of a file system, on this machine and elsewhere.

Both kinds promise that a file appears whole or not at all. Of a remote one no more is asked than that: no renames, no
locks, and no listing that knows at once what others have written (a segment that is not seen yet is a trial that runs
again, with the same result).
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from memfluence.store._files import file_errors, make_directory, move_file, publish, remove_stale_partials
from memfluence.store.locations import Location, Uri
from memfluence.store.parquet import read_bytes

__all__ = ["Place", "place_of"]


class Place(Protocol):
    """A file system. A file that is not there is a FileNotFoundError.

    `patience` is for how many seconds a call that is not answered is tried again, where that can happen (a minute).
    """

    def read(self, path: Any, most: int | None = None) -> pa.Buffer:
        """A file's bytes, or the first of them."""

    def read_all(self, paths: Iterable[Any], *, fresh: bool = False) -> Iterator[tuple[Any, Callable[[], pa.Buffer]]]:
        """Many files, in order; call what comes with each path for its bytes. `fresh`: not from a cache."""

    def publish(self, path: Any, content: bytes, *, replace: bool, patience: float | None = None) -> bool:
        """Write a file that appears whole. With `replace` false one that is there stays, and the answer is False."""

    def names(self, directory: Any) -> list[str]:
        """What is in a directory, sorted; nothing in one that is not there."""

    def is_file(self, path: Any) -> bool: ...

    def age(self, path: Any) -> float:
        """Seconds since the file was written."""

    def check(self, directory: Any) -> None:
        """Raise if the directory cannot be there for a reason of its own, such as a bucket that does not exist."""

    def make(self, directory: Any) -> None:
        """Make a directory for good, where there is such a thing."""

    def move(self, path: Any, to: Any) -> None:
        """Give a file another name for good."""

    def remove(self, path: Any, patience: float | None = None) -> None:
        """Delete a file; that it is gone already is fine."""

    def clean(self, directory: Any) -> None:
        """Delete what processes that are gone left half-written."""


class LocalPlace:
    """The file system of this machine, or one that is mounted."""

    def read(self, path: Path, most: int | None = None) -> pa.Buffer:
        if most is None:
            return read_bytes(path)
        with pa.OSFile(os.fsencode(path)) as file:
            return file.read_buffer(min(most, file.size()))  # it is allocated before it is read

    def read_all(self, paths: Iterable[Path], *, fresh: bool = False) -> Iterator[tuple[Path, Callable[[], pa.Buffer]]]:
        return ((path, partial(read_bytes, path)) for path in paths)

    def publish(self, path: Path, content: bytes, *, replace: bool, patience: float | None = None) -> bool:
        return publish(path, content, replace=replace)

    def names(self, directory: Path) -> list[str]:
        with file_errors(f"listing {directory}"):
            try:
                return sorted(entry.name for entry in directory.iterdir())
            except FileNotFoundError:
                return []

    def is_file(self, path: Path) -> bool:
        return path.exists() and not path.is_dir()

    def age(self, path: Path) -> float:
        return max(0.0, time.time() - path.stat().st_mtime)

    def check(self, directory: Path) -> None:
        """That it is not there says all."""

    def make(self, directory: Path) -> None:
        with file_errors(f"creating {directory}"):
            make_directory(directory)

    def move(self, path: Path, to: Path) -> None:
        move_file(path, to)

    def remove(self, path: Path, patience: float | None = None) -> None:
        path.unlink(missing_ok=True)

    def clean(self, directory: Path) -> None:
        with file_errors(f"cleaning {directory}"):
            remove_stale_partials(directory)


_HERE = LocalPlace()


def place_of(location: Location) -> Place:
    """The file system that a location is on."""
    return _HERE if isinstance(location, Path) else _remote(location.root, location.query)


@lru_cache
def _remote(root: str, query: str) -> Place:
    from memfluence.store._remote import RemotePlace

    return RemotePlace(Uri(root, "", query))
