"""`compact`: many small segments become few large ones, and no trial is ever without a segment.

A new segment is published, read back and compared before those go whose rows it has. Killed in between, the run has
these trials twice, and equal copies count once; the next `compact` writes them once. Writers are not disturbed, since
they only ever add; readers that find a segment gone look again. Two processes may compact one run at once: see
`StoreUpkeep.write_rows`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from memfluence.store import DamagedSegmentError, Location, TrialStore
from memfluence.store.upkeep._batches import LARGEST, Batches

__all__ = ["Compacted", "compact"]


@dataclass(frozen=True)
class Compacted:
    run: str
    segments_before: int
    segments: int
    written: int  # new segments
    copies: int  # records that were there more than once and are no longer
    damaged: tuple[str, ...]  # reasons why segments were left as they are

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compact(run: str | Location, *, largest: int = LARGEST) -> Compacted:
    """Join segments of less than half of `largest` bytes (in memory), and those that share trials with others.

    Segments of another run, damaged ones, and those with different records of one trial stay.
    """
    store = TrialStore.open(run)
    store.clean()
    before = store.segment_names()
    twice, differing = _there_twice(store)
    damaged = [
        f"{' and '.join(names)} have different records of trial {trial}; 'memfluence repair {run}' keeps one of them."
        for trial, names in differing.items()
    ]
    left = {name for names in differing.values() for name in names}

    def replaced(new: str, old: list[str]) -> None:
        store.remove_segments(name for name in old if name != new)

    batches = Batches(store, largest, replaced, at_least=2)
    for name in before:
        if name in left:
            continue
        try:
            rows = store.read_rows(name)
        except FileNotFoundError:
            continue  # set aside, or compacted by another process
        except DamagedSegmentError as error:
            damaged.append(str(error))
            continue
        if 2 * rows.nbytes < largest or np.isin(rows.numbers, twice).any():
            batches.add(name, rows)
    batches.close()
    after = len(store.segment_names())
    return Compacted(str(run), len(before), after, batches.segments, batches.copies, tuple(damaged))


def _there_twice(store: TrialStore) -> tuple[np.ndarray, dict[int, list[str]]]:
    """Trials that more than one segment has, and of those with different records also the segments."""

    def look(path: Location, read: Callable[[], pa.Buffer]) -> tuple[np.ndarray, np.ndarray]:
        numbers = store.read_rows(path.name, read()).numbers
        return numbers, numbers

    found, _ = store.read_each(look)
    numbers, times = np.unique(np.concatenate([np.empty(0, np.int64), *(one for _, one in found)]), return_counts=True)
    twice = numbers[times > 1]
    records: dict[int, list[tuple[bytes, str]]] = {}
    for path, there in found:
        if np.isin(there, twice).any():
            with suppress(FileNotFoundError, DamagedSegmentError):  # since just now
                rows = store.read_rows(path.name)
                for trial, record in zip(rows.numbers.tolist(), rows.records):
                    records.setdefault(trial, []).append((record, path.name))
    differing = {trial: several for trial, several in records.items() if len({record for record, _ in several}) > 1}
    return twice, {trial: sorted(name for _, name in several) for trial, several in sorted(differing.items())}
