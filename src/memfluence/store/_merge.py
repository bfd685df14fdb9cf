"""From many segments to one table of trials: in order, each once, refusing two different records of one trial."""

from collections.abc import Sequence

import numpy as np

from memfluence.errors import StoreError
from memfluence.records import Trials
from memfluence.store.bits import packed_width
from memfluence.store.locations import Location
from memfluence.store.segments import Segment

__all__ = ["merge"]

_COLUMNS = ("mask", "train_correct", "test_correct")
_AT_ONCE = 1024  # copies that are compared


def merge(parts: Sequence[tuple[Location, Segment]], n_train: int, n_test: int, repeats: int) -> Trials:
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
    numbers = np.concatenate([segment.numbers for _, segment in parts])  # (rows,)
    source = np.repeat(np.arange(len(parts)), [len(segment.numbers) for _, segment in parts])  # (rows,)
    kinds = np.concatenate([segment.kinds for _, segment in parts])
    order = np.argsort(numbers, kind="stable")
    again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1]) + 1  # positions in `order` of later copies
    copies, originals = order[again], order[again - 1]
    differ = kinds[copies] != kinds[originals]  # (copies,)
    rows = np.delete(order, again)
    columns = {}
    for name in _COLUMNS:  # one at a time: the most that is ever held is the segments, and the largest column twice
        column = np.concatenate([segment.bits[name] for _, segment in parts])
        for start in range(0, len(copies), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            differ[some] |= (column[copies[some]] != column[originals[some]]).any(axis=1)
        columns[name] = column[rows]
    if differ.any():
        row, before = copies[differ][0], originals[differ][0]
        raise StoreError(
            f"trial {numbers[row]} has two different records, in {parts[source[before]][0]} and"
            f" {parts[source[row]][0]}; move the one you do not trust out of the run and go on"
            " (a learner that ignores its seed gives such records when two processes run one trial)."
        )
    mask, train_correct, test_correct = columns.values()
    return Trials(numbers[rows], kinds[rows], mask, train_correct, test_correct, n_train, n_test, repeats)
