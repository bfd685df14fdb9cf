"""Unfinished trials: checkpoints of those in training, and notes of those that failed.

    RUN/checkpoints/000000003.checkpoint     a line of JSON that says what it is, then the learner's own bytes
    RUN/failures/000000004-0f3a51c2.json     the error of the trial

With a checkpoint a killed run goes on in the middle of a trial. Checkpoints are no results: nothing is read from them
but by the learner that wrote them, and each is deleted as soon as its trial's outcome is stored. One that is damaged,
of another run or made with other versions is passed over with a note. In a remote run they are objects like all else,
so that any machine can go on with them. If a note of a failure is lost, its trial is run again at worst.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from memfluence.errors import StoreError, shortened
from memfluence.records import Failure
from memfluence.store.parquet import content_digest
from memfluence.store.places import Location, place_of
from memfluence.store.run_file import MOST, plain_json

_FORMAT = 1
_LONGEST_HEADER = 65536
_SUFFIX = ".checkpoint"
_PATIENCE = 5.0  # seconds that a remote checkpoint may keep its trial waiting; it is no result


@dataclass(frozen=True)
class StoredCheckpoint:
    trial: int
    fraction: float
    seconds_ago: float


class CheckpointFiles:
    """The checkpoints of one run. Each file appears whole or not at all."""

    def __init__(
        self, directory: Location, identity: Mapping[str, str], every: float, note: Callable[[str], None] | None = None
    ) -> None:
        self.every = every
        self._directory, self._place, self._identity = directory, place_of(directory), dict(identity)
        self._note = note or (lambda message: None)
        names = (name.removesuffix(_SUFFIX) for name in self._place.names(directory) if name.endswith(_SUFFIX))
        self._there = {int(name) for name in names if name.isdecimal()}

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        """What `save` was given last, if it was in this run and with the same `made_with`."""
        try:
            return self._read(trial, made_with)[1]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, StoreError) as error:
            self._note(f"The checkpoint of trial {trial} is not used, because {error}; the trial starts over.")
            return None

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        """Replace the trial's checkpoint. A disk that takes none is no reason to lose the trial: that is a note."""
        header = {
            "format": _FORMAT,
            "trial": trial,
            "fraction": fraction,
            "run": self._identity,
            "made_with": dict(made_with),
            "digest": content_digest(content),
        }
        try:
            self._place.make(self._directory)
            whole = json.dumps(header).encode() + b"\n" + content
            self._place.publish(self._path(trial), whole, replace=True, patience=_PATIENCE)
            self._there.add(trial)
        except StoreError as error:
            self._note(f"Trial {trial} goes on without a checkpoint. {error}")

    def remove(self, trials: Iterable[int]) -> None:
        """Delete the checkpoints of these trials, where there are any."""
        for trial in self._there.intersection(trials):
            with suppress(OSError, StoreError):
                self._place.remove(self._path(trial), patience=_PATIENCE)
            self._there.discard(trial)

    def part_way(self, done: Iterable[int]) -> list[StoredCheckpoint]:
        """Trials of this run that are part-way and not among those done, ascending; damaged files are left out."""
        found = []
        for trial in sorted(self._there.difference(done)):
            with suppress(OSError, ValueError):
                header, _ = self._read(trial, most=_LONGEST_HEADER)
                seconds_ago = self._place.age(self._path(trial))
                found.append(StoredCheckpoint(trial, float(header["fraction"]), seconds_ago))
        return found

    def damaged(self) -> list[tuple[Location, str]]:
        """Files that are no checkpoint of this run, or are not what was written, each with the reason."""
        found = []
        for trial in sorted(self._there):
            try:
                self._read(trial)
            except FileNotFoundError:
                continue  # its trial is done
            except (OSError, ValueError) as error:
                found.append((self._path(trial), f"{self._path(trial)} cannot be gone on from: {error}."))
        return found

    def _read(
        self, trial: int, made_with: Mapping[str, str] | None = None, most: int | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """A checkpoint's header and content (`most`: of its first bytes, which are not held against their digest).

        ValueError says why it is not one of this trial, here and now; without `made_with` it may be of any versions.
        """
        header, content = _parts(self._place.read(self._path(trial), most))
        if header["format"] != _FORMAT:
            raise ValueError(f"it has the format {shortened(header['format'])} (here it is {_FORMAT})")
        if header["trial"] != trial or header["run"] != self._identity:
            raise ValueError("it is of another run")
        there = header["made_with"]
        here = there if made_with is None else made_with
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                before = shortened(there.get(name)).strip("'")
                raise ValueError(f"it was made with {name:.60} {before} (here it is {here.get(name)})")
        if most is None and content_digest(content) != header["digest"]:
            raise ValueError("it is damaged")
        return header, content

    def _path(self, trial: int) -> Location:
        return self._directory / f"{trial:09d}{_SUFFIX}"


def _parts(whole: pa.Buffer) -> tuple[dict[str, Any], bytes]:
    """The header, and what follows it."""
    first, _, rest = whole.to_pybytes().partition(b"\n")
    try:
        header = plain_json(first[:_LONGEST_HEADER])
    except ValueError:
        header = None
    types = {"format": int, "trial": int, "fraction": int | float, "run": dict, "made_with": dict, "digest": str}
    if not isinstance(header, dict) or any(not isinstance(header.get(name), kind) for name, kind in types.items()):
        raise ValueError("it is damaged")
    return header, rest


def write_failure(directory: Location, failure: Failure) -> None:
    """Write the note of a failed trial."""
    place = place_of(directory)
    place.make(directory)
    path = directory / f"{failure.trial:09d}-{uuid.uuid4().hex[:8]}.json"
    place.publish(path, (json.dumps(asdict(failure), indent=2) + "\n").encode(), replace=True)


def read_failures(
    files: Iterable[tuple[Location, Callable[[], pa.Buffer]]],
) -> Iterator[tuple[Location, Failure | None]]:
    """The notes of failed trials; None for one that cannot be read."""
    for path, read in files:
        try:
            yield path, _failure_from(read().to_pybytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            yield path, None


def _failure_from(content: bytes) -> Failure:
    """The note of a failed trial; ValueError if it is none."""
    raw = plain_json(content)
    names = {"trial": int, "message": str, "traceback": str}
    if not isinstance(raw, dict) or any(type(value) is not names.get(name) for name, value in raw.items()):
        raise ValueError("it is no note of a failed trial")
    if not {"trial", "message"} <= raw.keys() or not 0 <= raw["trial"] < MOST:
        raise ValueError("it does not say which trial failed, or how")
    return Failure(**raw)
