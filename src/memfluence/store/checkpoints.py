"""Checkpoints: trials that are still in training, so that a killed run goes on in the middle of one.

    RUN/checkpoints/000000003.checkpoint   a line of JSON that says what it is, then the learner's own bytes

They are no results: nothing is read from them but by the learner that wrote them, and each is deleted as soon as its
trial's outcome is stored. One that is damaged, of another run or made with other versions is passed over with a note.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from memfluence.errors import StoreError
from memfluence.store._files import file_errors, publish

__all__ = ["CheckpointFiles", "StoredCheckpoint"]

_FORMAT = 1
_LONGEST_HEADER = 65536


@dataclass(frozen=True)
class StoredCheckpoint:
    trial: int
    fraction: float
    seconds_ago: float


class CheckpointFiles:
    """The checkpoints of one run. Each file appears whole or not at all."""

    def __init__(
        self, directory: Path, identity: Mapping[str, str], every: float, note: Callable[[str], None] | None = None
    ) -> None:
        self.every = every
        self._directory, self._identity = directory, dict(identity)
        self._note = note or (lambda message: None)
        self._there = {int(path.stem) for path in directory.glob("*.checkpoint") if path.stem.isdigit()}

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        """What `save` was given last, if it was in this run and with the same `made_with`."""
        try:
            with self._path(trial).open("rb") as file:
                header, content = _read_header(file), file.read()
            self._check(header, trial, made_with)
            if _digest(content) != header["digest"]:
                raise ValueError("it is damaged")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._note(f"The checkpoint of trial {trial} is not used, because {error}; the trial starts over.")
            return None
        return content

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        """Replace the trial's checkpoint. A disk that takes none is no reason to lose the trial: that is a note."""
        header = {
            "format": _FORMAT,
            "trial": trial,
            "fraction": fraction,
            "run": self._identity,
            "made_with": dict(made_with),
            "digest": _digest(content),
        }
        try:
            with file_errors(f"creating {self._directory}"):
                self._directory.mkdir(exist_ok=True)
            publish(self._path(trial), json.dumps(header).encode() + b"\n" + content, replace=True)
            self._there.add(trial)
        except StoreError as error:
            self._note(f"Trial {trial} goes on without a checkpoint. {error}")

    def remove(self, trials: Iterable[int]) -> None:
        """Delete the checkpoints of these trials, where there are any."""
        for trial in self._there.intersection(trials):
            with suppress(OSError):
                self._path(trial).unlink(missing_ok=True)
            self._there.discard(trial)

    def part_way(self, done: Iterable[int]) -> list[StoredCheckpoint]:
        """Trials of this run that are part-way and not among those done, ascending; damaged files are left out."""
        found = []
        for trial in sorted(self._there.difference(done)):
            with suppress(OSError, ValueError), self._path(trial).open("rb") as file:
                header = _read_header(file)
                self._check(header, trial, header["made_with"])
                age = max(0.0, time.time() - self._path(trial).stat().st_mtime)
                found.append(StoredCheckpoint(trial, float(header["fraction"]), age))
        return found

    def _check(self, header: Mapping[str, Any], trial: int, made_with: Mapping[str, str]) -> None:
        """Raises ValueError with the reason why a checkpoint is not one of this trial, here and now."""
        if header["format"] != _FORMAT:
            raise ValueError(f"it has the format {header['format']} (here it is {_FORMAT})")
        if header["trial"] != trial or header["run"] != self._identity:
            raise ValueError("it is of another run")
        there = header["made_with"]
        for name in sorted({*there, *made_with}):
            if there.get(name) != made_with.get(name):
                raise ValueError(f"it was made with {name} {there.get(name)} (here it is {made_with.get(name)})")

    def _path(self, trial: int) -> Path:
        return self._directory / f"{trial:09d}.checkpoint"


def _read_header(file: BinaryIO) -> dict[str, Any]:
    try:
        header = json.loads(file.readline(_LONGEST_HEADER))
        is_whole = {"format", "trial", "fraction", "run", "made_with", "digest"} <= header.keys()
    except (ValueError, AttributeError):
        is_whole = False
    if not is_whole:
        raise ValueError("it is damaged")
    return dict(header)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
