"""Rows that come from many segments and go into few, of bounded size."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from memfluence.store import Rows, TrialStore, join_rows

__all__ = ["LARGEST", "Batches"]

LARGEST = 32 * 2**20  # bytes of a segment in memory: few files, and little to run again if one is damaged


@dataclass
class _Waiting:
    parts: list[tuple[str, Rows]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    bytes: float = 0.0

    def bytes_of(self, rows: Rows) -> float:
        """What these rows would add."""
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
        numbers, precedence = rows.numbers.tolist(), rows.precedence
        first: dict[int, int] = {}
        for row in sorted(range(len(rows)), key=lambda row: (numbers[row], precedence[row])):
            first.setdefault(numbers[row], row)
        self.copies += len(rows) - len(first)
        rows = rows.take(np.array(list(first.values()), np.int64))
        new = self._store.write_rows(rows)
        self.segments += 1
        self._on_segment(new, [name for name, _ in waiting])
