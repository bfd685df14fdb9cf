"""What a run or a published file says about pairs, in one form for both, and how two of them agree over thresholds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from memfluence.exchange.published import Published
from memfluence.findings.agreement import INFLUENCE, MEMORIZATION, Agreement, Part, agreement, influence_agreement
from memfluence.runs import Run

__all__ = ["influence_curve", "influence_of", "memorization_curve", "pair_set"]

Side = Run | Published


def memorization_curve(first: np.ndarray, second: np.ndarray) -> Agreement:
    """How two estimates of memorization agree."""
    return agreement([Part(first, second, np.True_, np.True_)], MEMORIZATION)


def influence_curve(
    left: Side,
    right: Side,
    pairs: Sequence[set[tuple[int, int]]],  # that each side selects at `mem` and `infl`
    mem: float,
    infl: float,
    keep: float | None,
    memory: str | int | None,
) -> Agreement | None:
    """How two sides agree on pairs of one class; None where a file does not say enough.

    A file of pairs knows nothing below the threshold it was cut at, taken to be `infl`, and has no influence of other
    pairs: thresholds begin there, and the average difference is NaN.
    """
    if any(isinstance(side, Published) and side.train_index is not None for side in (left, right)):
        return _with_pairs(left, right, pairs, infl, keep, memory)
    if isinstance(left, Run) and isinstance(right, Run):
        memorized = [side.estimate_memorization(keep).value >= mem for side in (left, right)]
        estimates = [side.influence_estimates(keep, memory=memory) for side in (left, right)]
        return influence_agreement(
            estimates[0], estimates[1], (memorized[0], memorized[1]), *left.label_codes, INFLUENCE
        )
    if isinstance(left, Run) and isinstance(right, Published):
        return agreement(_blocks(left, right, mem, keep, memory), INFLUENCE)
    return None


def _blocks(run: Run, published: Published, mem: float, keep: float | None, memory: str | int | None) -> Iterator[Part]:
    estimates = run.influence_estimates(keep, memory=memory)
    ours, theirs = run.estimate_memorization(keep).value >= mem, np.asarray(published.memorization) >= mem
    for train, test, values in published.blocks:
        yield Part(estimates.block(train, test), values, ours[train, None], theirs[train, None])


def _with_pairs(
    left: Side,
    right: Side,
    pairs: Sequence[set[tuple[int, int]]],
    infl: float,
    keep: float | None,
    memory: str | int | None,
) -> Agreement:
    levels = np.union1d(INFLUENCE[infl < INFLUENCE], [infl])
    either = sorted(pairs[0] | pairs[1])
    train, test = (np.array([pair[k] for pair in either], dtype=np.int64) for k in (0, 1))
    may = [np.array([pair in side for pair in either], dtype=bool) for side in pairs]
    first, second = (
        np.where(selected, influence_of(side, train, test, keep, memory), -1.0)
        for side, selected in zip((left, right), may)
    )
    found = agreement([Part(first, second, may[0], may[1])], levels)
    return replace(found, difference=np.full(len(levels), np.nan))


def pair_set(
    side: Side, mem: float, infl: float, keep: float | None, memory: str | int | None
) -> set[tuple[int, int]] | None:
    """The pairs that a side selects; None where a file does not say."""
    if isinstance(side, Run):
        found = side.find_pairs(mem, infl, keep=keep, permutations=0, memory=memory)
        return set(zip(found.train_index.tolist(), found.test_index.tolist()))
    if side.train_index is not None and side.test_index is not None:
        return set(zip(side.train_index.tolist(), side.test_index.tolist()))  # those that `comparing` left in it
    if side.memorization is None or not side.blocks:
        return None
    pairs: set[tuple[int, int]] = set()
    for train, test, values in side.blocks:
        hits = np.nonzero((values >= infl) & (side.memorization[train] >= mem)[:, None])
        pairs.update(zip(train[hits[0]].tolist(), test[hits[1]].tolist()))
    return pairs


def influence_of(
    side: Side, train: np.ndarray, test: np.ndarray, keep: float | None, memory: str | int | None
) -> np.ndarray:
    """The influence of some pairs; NaN where a file does not say."""
    if isinstance(side, Run):
        return side.influence_estimates(keep, memory=memory).at(train, test).value
    values = np.full(len(train), np.nan)
    if side.train_index is not None and side.test_index is not None and side.influence is not None:
        known = dict(zip(zip(side.train_index.tolist(), side.test_index.tolist()), side.influence.tolist()))
        return np.array([known.get(pair, np.nan) for pair in zip(train.tolist(), test.tolist())], dtype=float)
    for rows, columns, block in side.blocks:
        row, column = (_places(have, wanted) for have, wanted in ((rows, train), (columns, test)))
        here = (row >= 0) & (column >= 0)
        values[here] = block[row[here], column[here]]
    return values


def _places(have: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each wanted index stands in `have`; -1 where it does not."""
    size = 1 + max(int(have.max(initial=-1)), int(wanted.max(initial=-1)))
    place = np.full(size, -1)
    place[have] = np.arange(len(have))
    return np.asarray(place[wanted])
