"""Segments that a run's storage did not take: kept on this machine until it does.

    CACHE/unsent/DIGEST OF THE RUN'S URI/*.parquet    see `store._cache`

They are no cache. What is trained while the network is down is written here at once, and sent when the storage answers
again: at the next segment, at the end, or by the next `memfluence run` of this machine into the same run.
"""

from collections.abc import Mapping
from pathlib import Path

from memfluence.errors import StoreError
from memfluence.records import digest
from memfluence.store._cache import cache_directory
from memfluence.store._files import write_whole
from memfluence.store._places import place_of
from memfluence.store.locations import Location
from memfluence.store.parquet import read_bytes
from memfluence.store.segments import DamagedSegmentError, trials_in

__all__ = ["keep_unsent", "send_unsent", "unsent_trials"]


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


def send_unsent(run: Location, identity: Mapping[str, str]) -> None:
    """Publish what is kept here of the run. What is damaged or of another run that was there stays where it is."""
    for path, _ in _kept(run, identity):
        place_of(run).publish(run / "trials" / path.name, read_bytes(path).to_pybytes(), replace=True)
        path.unlink(missing_ok=True)


def unsent_trials(run: Location, identity: Mapping[str, str]) -> tuple[int, Path]:
    """How many trials of the run are kept here, and where."""
    return sum(count for _, count in _kept(run, identity)), _directory(run)


def _kept(run: Location, identity: Mapping[str, str]) -> list[tuple[Path, int]]:
    """The kept segments and how many trials each has."""
    found = []
    for path in [] if isinstance(run, Path) else sorted(_directory(run).glob("[!.]*.parquet")):
        try:
            found.append((path, len(trials_in(path, identity)["trial"])))
        except (DamagedSegmentError, FileNotFoundError):  # sent by another process just now
            continue
    return found


def _directory(run: Location) -> Path:
    return cache_directory() / "unsent" / digest(str(run))
