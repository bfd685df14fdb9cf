"""From many segments to one table of trials: ascending, each trial once, and which of two records of one trial counts.

Equal records of a trial count once. Two records that differ are no damage: a learner that ignores its seed gives them,
or two kinds of device, when two processes run one trial. The one that was finished first counts, by the clocks of the
hosts; a record that does not say when (of an older version) goes before those that do. Of two that were finished at
the same time the one with the lower digest (`Rows.records`) counts. So the choice depends on the records alone, never
on the segments that they are in or on the order in which these are read, and a record that is finished later does not
change it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from memfluence.records import Trials
from memfluence.store.parquet import packed_width
from memfluence.store.places import Location
from memfluence.store.segments import Segment

_COLUMNS = ("mask", "train_correct", "test_correct")


class Part(Protocol):
    """What is read of a segment."""

    @property
    def numbers(self) -> np.ndarray:
        """Trial numbers (rows,) int64."""

    @property
    def finished(self) -> np.ndarray:
        """When each was finished (rows,) float64, seconds since 1970; NaN where that is not recorded."""


def precedence(finished: float, record: bytes) -> tuple[float, bytes]:
    """Of several records of a trial the one that counts has the lowest value of this."""
    return (finished if finished == finished else -np.inf), record


def choose(
    parts: Sequence[tuple[Location, Part]], records_in: Callable[[Location], Mapping[int, bytes]]
) -> tuple[np.ndarray, tuple[int, ...]]:
    """The rows that count, and the trials of which there are different records.

    Rows are positions (trials,) in all parts, one part after the other, in ascending order of their trials.
    `records_in` gives the digests of a segment's records by trial; it is asked of segments that share trials alone.
    """
    numbers = np.concatenate([np.empty(0, np.int64), *(part.numbers for _, part in parts)])  # (rows,)
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    is_first = np.concatenate([np.ones(min(1, len(numbers)), bool), ascending[1:] != ascending[:-1]])
    chosen, differing = order[is_first], []
    if len(chosen) < len(numbers):
        finished = np.concatenate([part.finished for _, part in parts])
        ends = np.cumsum([len(part.numbers) for _, part in parts])
        records: dict[int, Mapping[int, bytes]] = {}
        bounds = np.append(np.flatnonzero(is_first), len(order))
        for at in np.flatnonzero(np.diff(bounds) > 1).tolist():
            trial, copies = int(ascending[bounds[at]]), order[bounds[at] : bounds[at + 1]].tolist()
            ranked = []
            for row in copies:
                part = int(np.searchsorted(ends, row, side="right"))
                if part not in records:
                    records[part] = records_in(parts[part][0])
                ranked.append((precedence(float(finished[row]), records[part].get(trial, b"")), row))
            chosen[at] = min(ranked)[1]
            if len({record for (_, record), _ in ranked}) > 1:
                differing.append(trial)
    return chosen, tuple(differing)


def merge(parts: Sequence[Segment], rows: np.ndarray, n_train: int, n_test: int, repeats: int) -> Trials:
    """The table of these rows of all parts."""
    if not parts:
        return Trials(
            np.empty(0, np.int64),
            np.empty(0, np.int16),
            np.empty((0, packed_width(n_train)), np.uint8),
            np.empty((0, packed_width(n_train)), np.uint8),
            np.empty((0, packed_width(n_test)), np.uint8),
            n_train,
            n_test,
            repeats,
        )

    def taken(columns: Sequence[np.ndarray]) -> Any:
        return np.concatenate(columns)[rows]

    # One column at a time: the most that is ever held is the segments, and the largest column twice.
    mask, train_correct, test_correct = (taken([part.bits[name] for part in parts]) for name in _COLUMNS)
    numbers, kinds = taken([part.numbers for part in parts]), taken([part.kinds for part in parts])
    return Trials(numbers, kinds, mask, train_correct, test_correct, n_train, n_test, repeats)
