"""What `TrialStore` offers to those who look after a run: segments one by one, read, written anew, removed."""

import errno
import json
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from memfluence.errors import StoreError
from memfluence.records import Failure
from memfluence.store import segments
from memfluence.store.checkpoints import CheckpointFiles
from memfluence.store.parquet import ParquetContent, content_digest
from memfluence.store.places import Location, Place, file_errors
from memfluence.store.rows import Rows, read_rows
from memfluence.store.run_file import MOST, RUN_FILE, RunInfo, plain_json

T = TypeVar("T")
_PAUSES = (0.1, 0.3, 1.0, 3.0, 10.0)  # seconds until a listing is made again that lacks what another host did
Read = Callable[[], pa.Buffer]  # gives a file's bytes


@dataclass(frozen=True)
class Damage:
    path: Location
    reason: str


def failure_from(content: bytes) -> Failure:
    """The note of a failed trial; ValueError if it is none."""
    raw = plain_json(content)
    names = {"trial": int, "message": str, "traceback": str}
    if not isinstance(raw, dict) or any(type(value) is not names.get(name) for name, value in raw.items()):
        raise ValueError("it is no note of a failed trial")
    if not {"trial", "message"} <= raw.keys() or not 0 <= raw["trial"] < MOST:
        raise ValueError("it does not say which trial failed, or how")
    return Failure(**raw)


class StoreUpkeep:
    path: Location
    info: RunInfo
    _place: Place

    def segment_names(self) -> list[str]:
        """Segments that count, in the order of their trials."""
        condemned = self._condemned()
        paths = (path for path in self._segment_paths() if not _is_no_file(path))
        return [path.name for path in paths if path.name not in condemned]

    def segment_path(self, name: str) -> Location:
        return self.path / "trials" / name

    def read_rows(self, name: str, content: pa.Buffer | None = None) -> Rows:
        """All rows of one segment, or of `content` read from it, verified.

        FileNotFoundError: it was set aside or compacted since it was listed.
        """
        path = self.segment_path(name)
        if content is None:
            content = self._content(path, partial(self._place.read, path))
        return read_rows(path, self.info.identity, self._sizes, content)

    def _content(self, path: Location, read: Read) -> pa.Buffer:
        """The bytes of a segment. One that cannot be read may be good: that is an error, and does not condemn it."""
        try:
            return read()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ESTALE:  # how a network's file system says that it is gone
                raise FileNotFoundError(str(path)) from error
            with file_errors(f"reading {path}"):
                raise
            raise

    def segment_identity(self, name: str) -> dict[str, str] | None:
        """The run that a segment says it belongs to; None if its bytes are not those that were written."""
        path = self.segment_path(name)
        if _is_no_file(path):
            return None
        try:
            content = self._place.read(path)
            if content_digest(content) != path.stem.rpartition("-")[2]:
                return None
            with ParquetContent(content) as file:
                found = file.schema.metadata or {}
            return {key: found.get(key.encode(), b"").decode() for key in self.info.identity}
        except (pa.ArrowException, OSError, ValueError):
            return None

    def write_rows(self, rows: Rows) -> str:
        """Publish rows that other segments have too, read them back, and give the name of their new segment.

        No segment ever had that name, so whoever removes the others afterwards never removes this one by mistake, nor
        does another process that does the same: what it removes, it has written anew later than it read it.
        """
        content = segments.encode_table(rows.table, {**self.info.identity, "memfluence.rewritten": uuid.uuid4().hex})
        name = segments.segment_name(rows.numbers.tolist(), content)
        path = self.segment_path(name)
        self._place.publish(path, content, replace=True)
        try:
            ((_, read),) = self._place.read_all([path], fresh=True)
            is_there = self.read_rows(name, read()) == rows
        except FileNotFoundError:
            raise StoreError(f"Another process took {path} away just now; run the same command again.") from None
        except segments.DamagedSegmentError:
            is_there = False
        if not is_there:
            raise StoreError(f"{path} was not read back as it was written; nothing was removed. Check the disk.")
        return name

    def remove_segments(self, names: Iterable[str]) -> None:
        """Delete segments whose rows are in others."""
        for name in names:
            with file_errors(f"removing {self.segment_path(name)}"):
                self._place.remove(self.segment_path(name))

    def condemn(self, names: Iterable[str] = ()) -> None:
        """Say that segments no longer count, all of them at once; `set_aside` then moves one after another.

        Of two different records of a trial one would else look right once the other is gone. Without names, what was
        condemned and is gone by now is forgotten.
        """
        there = self._condemned().intersection(path.name for path in self._segment_paths())
        condemned = sorted({*there, *names})
        if condemned or self._place.is_file(self._condemned_file):
            self._place.make(self.path / "damaged")
            self._place.publish(self._condemned_file, json.dumps(condemned).encode(), replace=True)
        if not condemned:  # that nobody is, is on the disk; so it may come back
            self._place.remove(self._condemned_file)

    def _condemned(self) -> set[str]:
        try:
            names = plain_json(self._place.read(self._condemned_file).to_pybytes())
        except (OSError, ValueError):
            return set()
        return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()

    @property
    def _condemned_file(self) -> Location:
        return self.path / "damaged" / "condemned.json"

    def checkpoints(self, every: float = 0.0, note: Callable[[str], None] | None = None) -> CheckpointFiles:
        """Where trials in training are kept; `note` is told why one is not used or cannot be written."""
        return CheckpointFiles(self.path / "checkpoints", self.info.identity, every, note)

    def damaged_notes(self) -> list[Damage]:
        """Notes of failures and checkpoints that cannot be read, or are of another run."""
        found = [Damage(path, reason) for path, reason in self.checkpoints().damaged()]
        for path, read in self._place.read_all(self._files("failures", ".json")):
            try:
                failure_from(read().to_pybytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                found.append(Damage(path, f"{path} cannot be read as the note of a trial that failed."))
        return found

    def read_each(
        self, use: Callable[[Location, Read], tuple[np.ndarray, T]], *, fresh: bool = False
    ) -> tuple[list[tuple[Location, T]], tuple[Damage, ...]]:
        """What `use` makes of every segment, and those that are damaged or condemned; `fresh`: not from a cache.

        `use` gives a segment's trial numbers, too. A segment that vanishes meanwhile was compacted or set aside: its
        trials may be in another that was not listed, so the list is made again until nothing has vanished. That ends,
        because no name ever comes back. If its trials are nowhere then, the listing is late (other hosts' changes may
        take a while to be seen), and after some pauses that is an error: what is not seen would be a smaller run.
        """
        found: list[tuple[Location, T]] = []
        numbers = [np.empty(0, np.int64)]
        damaged: list[Damage] = []
        seen: set[Location] = set()
        gone: list[str] = []
        pauses = iter(_PAUSES)
        while True:
            vanished, condemned = False, self._condemned()
            new = [path for path in self._segment_paths() if path not in seen]
            seen.update(new)
            for path, read in self._place.read_all(new, fresh=fresh):
                if _is_no_file(path):
                    damaged.append(Damage(path, f"{path} is no file, and only files belong there."))
                    continue
                if path.name in condemned:
                    damaged.append(Damage(path, f"{path} was about to be set aside by a repair that was not finished."))
                    continue
                try:
                    there, made = use(path, partial(self._content, path, read))
                except FileNotFoundError:
                    vanished = True
                    gone.append(path.name)
                except segments.DamagedSegmentError as error:
                    damaged.append(Damage(path, str(error)))
                else:
                    numbers.append(there)
                    found.append((path, made))
            if vanished:
                continue
            gone = self._without_trials(gone, np.concatenate(numbers), [damage.path.name for damage in damaged])
            if not gone:
                return found, tuple(damaged)
            if (pause := next(pauses, None)) is None:
                raise StoreError(
                    f"{gone[0]} was listed in {self.path / 'trials'} and is not there, nor is any other segment with"
                    " its trials. The listing may be older than what another host did: run the same command again."
                )
            time.sleep(pause)

    def _without_trials(self, gone: Iterable[str], numbers: np.ndarray, damaged: Sequence[str]) -> list[str]:
        """Those of the segments that vanished whose trials nothing shows, though they were not set aside."""
        left = [name for name in gone if not segments.has_trials_of(name, numbers, damaged)]
        aside = self._place.names(self.path / "damaged") if left else []
        return [name for name in left if not any(one.endswith(name) for one in aside)]

    @property
    def _sizes(self) -> dict[str, int]:
        return {"n_train": self.info.n_train, "n_test": self.info.n_test}

    def _segment_paths(self) -> list[Location]:
        if isinstance(self.path, Path) and not (self.path / "trials").is_dir():
            raise StoreError(f"{self.path} has a {RUN_FILE} but no trials/ directory; restore it from a copy.")
        return self._files("trials", ".parquet")

    def _files(self, part: str, suffix: str) -> list[Location]:
        """Files of a part of the run, in the order of their names."""
        names = self._place.names(self.path / part)
        return [self.path / part / name for name in names if name.endswith(suffix) and not name.startswith(".")]


def _is_no_file(path: Location) -> bool:
    """Whether there is something else: a directory, or a pipe, whose reader would wait for ever.

    Looked at once: a file that vanishes between two looks, because it is compacted, was one.
    """
    try:
        return isinstance(path, Path) and not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
