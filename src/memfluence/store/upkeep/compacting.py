"""`compact`: many small segments become few large ones, and no trial is ever without a segment.

A new segment is published, read back and compared before those go whose rows it has. Killed in between, the run has
these trials twice, and equal copies count once; the next `compact` writes them once. Writers are not disturbed, since
they only ever add; readers that find a segment gone look again. Two processes may compact one run at once: see
`TrialStore.write_rows`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from memfluence.store import DamagedSegmentError, Location, Rows, TrialStore, join_rows
from memfluence.store.segments import choose, is_in_span, overlapping

LARGEST = 32 * 2**20  # bytes of a segment in memory: few files, and little to run again if one is damaged


@dataclass
class _Waiting:
    parts: list[tuple[str, Rows]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    bytes: float = 0.0

    def bytes_of(self, rows: Rows) -> float:
        """The bytes that these rows would add."""
        new = sum(number not in self.numbers for number in rows.numbers.tolist())
        return rows.nbytes * new / max(1, len(rows))


class Batches:
    """Collects rows and writes them to `store` as segments of at most `largest` bytes, one for each layout at a time.

    Equal records of a trial that wait together count once; different ones are not to be given.

    `on_segment` is told the new segment and the names under which its rows were given. What was given under fewer than
    `at_least` names is not written.
    """

    def __init__(
        self,
        store: TrialStore,
        largest: int = LARGEST,
        on_segment: Callable[[str, list[str]], None] | None = None,
        *,
        at_least: int = 1,
    ) -> None:
        self._store, self._largest, self._at_least = store, largest, at_least
        self._on_segment = on_segment or (lambda new, old: None)
        self._waiting: dict[str, _Waiting] = {}  # by layout
        self.segments = 0
        self.copies = 0

    def add(self, name: str, rows: Rows) -> None:
        waiting = self._waiting.setdefault(rows.layout, _Waiting())
        if waiting.bytes + waiting.bytes_of(rows) > self._largest:
            self._write(waiting.parts)
            waiting = self._waiting[rows.layout] = _Waiting()
        waiting.bytes += waiting.bytes_of(rows)
        waiting.parts.append((name, rows))
        waiting.numbers.update(rows.numbers.tolist())

    def close(self) -> None:
        """Write what is waiting."""
        for waiting in self._waiting.values():
            self._write(waiting.parts)
        self._waiting = {}

    def _write(self, waiting: list[tuple[str, Rows]]) -> None:
        if len(waiting) < self._at_least:
            return
        rows = join_rows([part for _, part in waiting])
        chosen, _ = choose([(self._store.path, rows)], lambda path: {})  # records of one trial are equal here
        self.copies += len(rows) - len(chosen)
        new = self._store.write_rows(rows.take(chosen))
        self.segments += 1
        self._on_segment(new, [name for name, _ in waiting])


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
    twice, differing, unread = _there_twice(store, overlapping(before))
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
        if name in unread or not is_in_span(name, rows.numbers):
            damaged.append(f"{store.segment_path(name)} has other trials than its name says, or such as no run has.")
        elif 2 * rows.nbytes < largest or np.isin(rows.numbers, twice).any():
            batches.add(name, rows)
    batches.close()
    after = len(store.segment_names())
    return Compacted(str(run), len(before), after, batches.segments, batches.copies, tuple(damaged))


def _there_twice(store: TrialStore, names: Sequence[str]) -> tuple[list[int], dict[int, list[str]], set[str]]:
    """Trials that more than one of these segments has; of those with different records the segments; and what cannot
    be read. What another process has compacted is passed over."""
    segments_of: dict[int, list[str]] = {}
    unread: set[str] = set()
    for name in names:
        try:
            numbers = store.read_rows(name, columns=()).numbers
        except FileNotFoundError:
            continue
        except DamagedSegmentError:
            unread.add(name)
            continue
        for trial in numbers.tolist():
            segments_of.setdefault(trial, []).append(name)
    several = {trial: there for trial, there in sorted(segments_of.items()) if len(there) > 1}
    records: dict[int, set[bytes]] = {trial: set() for trial in several}
    for name in sorted({name for there in several.values() for name in there}):
        with suppress(FileNotFoundError, DamagedSegmentError):
            rows = store.read_rows(name)
            for trial, record in zip(rows.numbers.tolist(), rows.records):
                if trial in records:
                    records[trial].add(record)
    return list(several), {trial: there for trial, there in several.items() if len(records[trial]) > 1}, unread
