"""Selection: the pairs that are looked at, and those of them that pass, by value or by p-value."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import (
    Arms,
    Block,
    Influence,
    Memory,
    RealInfluence,
    class_members,
    memorization_of,
    p_values,
    real_influence,
)
from memfluence.records import Kind, Trials

ESTIMATES_AT_ONCE = 2**22  # 32 MB in float64
ROWS_AT_ONCE = 2**16
BYTES_TESTED = 320  # of a pair while it is tested: its counts, its p-value, and all that takes on the way
BYTES_FOUND = 200  # of a pair that is selected, with its estimates, errors and q-value and what sorting takes
P_VALUE_BINS = 4096


def margins_of_ties(
    values: np.ndarray,  # (pairs,)
    train: np.ndarray,
    test: np.ndarray,
    trials: Trials,
    kinds: Sequence[Kind],
    margins: np.ndarray | None,  # (trials, n_test)
    keep: float | None,
) -> np.ndarray:
    """For pairs whose value others have, too, the influence on the test example's margin; 0 without margins: (pairs,).

    Right and wrong are counted, so many pairs have the same influence; margins say which of them matters more.
    """
    found = np.zeros(len(values))
    if margins is not None and len(values):
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        tied = np.flatnonzero(sizes[group] > 1)
        found[tied] = real_influence(trials, kinds, margins, keep).at(train[tied], test[tied]).value
    return found


class Selection(TypedDict, total=False):
    """Options of all that selects pairs."""

    same_class: bool
    keep: float | None
    seed: int
    memory: str | int | Memory | None


def tested_blocks(
    candidates: np.ndarray, train_labels: np.ndarray, test_labels: np.ndarray, same_class: bool
) -> Iterator[Block]:
    """All pairs of the candidates with test examples (of their class), in blocks of bounded size."""
    if same_class:
        members = class_members(train_labels[candidates], test_labels)
        groups = [(candidates[rows], columns) for _, rows, columns in members if len(rows)]
    else:
        groups = [(candidates, np.arange(len(test_labels)))]
    for rows, columns in groups:
        at_once = max(1, ESTIMATES_AT_ONCE // max(1, len(rows)))
        for start in range(0, len(columns), at_once):
            yield rows, columns[start : start + at_once]


def select(
    arms: Arms,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    mem: float,
    infl: float,
    same_class: bool,
    memory: Memory | None = None,
) -> tuple[Influence, np.ndarray, np.ndarray]:
    """The whole selection by thresholds: (estimates, train, test)."""
    estimates = Influence(arms, memory=memory)
    memorized = np.flatnonzero(memorization_of(arms).value >= mem)  # NaN is never at least anything
    return estimates, *estimates.at_least(infl, tested_blocks(memorized, train_labels, test_labels, same_class))


def significant(
    estimates: Influence | RealInfluence, blocks: Sequence[Block], null: float, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(train, test, p-value) of the pairs whose p-value is at most `level`, which must be below 1/2."""
    trains, tests, found = [], [], []
    count = 0
    for train, test, p in _tested(estimates, blocks, null):
        low = p <= level
        trains.append(train[low])
        tests.append(test[low])
        found.append(p[low])
        count += len(found[-1])
        estimates.memory.check(
            BYTES_FOUND * count, "sorting the pairs found so far", "a lower rate (`fdr`) or a higher `null`"
        )
    return _joined(trains), _joined(tests), np.concatenate([np.empty(0), *found])


def p_value_bound(
    estimates: Influence | RealInfluence, blocks: Sequence[Block], null: float, rate: float, tested: int
) -> float:
    """A p-value above which Benjamini and Hochberg's procedure selects nothing; at a rate 1% higher it would cut there.

    `significant` with it holds about the pairs that are selected, where with `rate` it would hold all those with a
    p-value up to the rate. P-values are counted in bins: those of a bin can be selected only if its lower edge is at
    most rate * rank / tested for the highest rank in it.
    """
    if not tested:
        return rate
    edges = np.geomspace(rate / tested, rate, P_VALUE_BINS)  # upper ones, included
    counts = np.zeros(P_VALUE_BINS + 1, dtype=np.int64)  # the last are beyond the rate
    for _, _, p in _tested(estimates, blocks, null):
        counts += np.bincount(np.searchsorted(edges, p), minlength=len(counts))
    lower, rank = np.append(0.0, edges[:-1]), np.cumsum(counts[:-1])
    possible = np.flatnonzero((counts[:-1] > 0) & (lower <= rate * rank / tested * (1 + 1e-9)))  # whatever the rounding
    return float(edges[possible[-1]]) if len(possible) else 0.0


def _tested(
    estimates: Influence | RealInfluence, blocks: Sequence[Block], null: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(train, test, p-value) of the pairs with an estimate above the null, in parts that fit the memory.

    Influence at or below the null has a p-value of 1/2 or more: the median of a hypergeometric distribution is its
    mean, rounded down or up; of real outcomes, that of Student's t.
    """
    arms = estimates.arms
    independent = arms.in_trials.cluster == 1
    for rows, columns in _parts(estimates, blocks):
        if isinstance(estimates, RealInfluence):
            found = estimates.p_values(rows, columns, null)
            row, column = np.nonzero(found < 0.5)
            yield rows[row], columns[column], found[row, column]
            continue
        x, a, y, b = estimates.counts(rows, columns)
        row, column = np.nonzero(x / a - y / b > null)
        four = [x[row, column], a[row, 0], y[row, column], b[row, 0]]
        train = rows[row]
        if not independent:  # as many as independent models would be
            scale_in, scale_out = arms.sample_in[train] / four[1], arms.sample_out[train] / four[3]
            four = [four[0] * scale_in, four[1] * scale_in, four[2] * scale_out, four[3] * scale_out]
        yield train, columns[column], p_values(*four, null=null, exact=independent)


def _parts(estimates: Influence | RealInfluence, blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, cut into parts that can be tested within what memory is left when each is asked for."""
    for rows, columns in blocks:
        for first in range(0, len(rows), ROWS_AT_ONCE):
            some, start = rows[first : first + ROWS_AT_ONCE], 0
            while start < len(columns):
                estimates.memory.check(
                    BYTES_TESTED * len(some), "testing pairs", "thresholds (`mem`, `infl`) without a rate (`fdr`)"
                )
                at_once = min(ESTIMATES_AT_ONCE, estimates.memory.left() / 2 / BYTES_TESTED) // len(some)
                stop = start + max(1, int(at_once))
                yield some, columns[start:stop]
                start = stop


def check_error_control(fdr: float, null: float, device: str, has_scores: bool = False) -> None:
    if device != "cpu":
        raise InputError(f"p-values are computed on the CPU, not on {device!r}; leave out the device, or the rate.")
    if not 0 < fdr < 0.5:
        raise InputError(f"The false discovery rate must be above 0 and below 0.5. Got {fdr!r} instead.")
    if not (-1 < null < 1 or has_scores):
        raise InputError(f"The null must be an influence between -1 and 1. Got {null!r} instead.")


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
