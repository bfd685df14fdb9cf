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
    first = np.searchsorted(source, np.arange(len(parts)))  # row at which each part begins
    order = np.argsort(numbers, kind="stable")
    again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1]) + 1  # positions in `order` of later copies
    for position in again:
        row, before = order[position], order[position - 1]
        here, there = (
            [parts[source[k]][1].bits[name][k - first[source[k]]] for name in _COLUMNS] for k in (row, before)
        )
        if kinds[row] != kinds[before] or any((one != other).any() for one, other in zip(here, there)):
            raise StoreError(
                f"trial {numbers[row]} has two different records, in {parts[source[before]][0]} and"
                f" {parts[source[row]][0]}; move the one you do not trust out of the run and go on"
                " (a learner that ignores its seed gives such records when two processes run one trial)."
            )
    rows = np.delete(order, again)
    # One column at a time: the most that is ever held is the segments, and the largest column twice.
    mask, train_correct, test_correct = (
        np.concatenate([segment.bits[name] for _, segment in parts])[rows] for name in _COLUMNS
    )
    return Trials(
        numbers[rows],
        kinds[rows],
        mask,
        train_correct,
        test_correct,
        n_train,
        n_test,
        repeats,
    )
