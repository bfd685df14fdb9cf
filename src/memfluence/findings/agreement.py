"""Do two sets of estimates select the same? The Jaccard index and the average difference over thresholds.

Definition (the paper's Sec. 3.5). At a threshold, each side selects the examples (or pairs) whose estimate is at least
that; pairs also need a training example that the *same side* estimates to be memorized (0.25). The Jaccard index is the
share of what either side selects that both select, and the average difference is the mean of |first - second| over what
either selects: a pair that one side alone finds memorized is in the union, with both sides' influence.

Estimator. Exact counts in one pass over parts of the estimates; memory does not grow with what is selected.

Variance. Not from here: pairs share their trials, so the caller draws trials anew (`experiments/consistency.py`).

Failure cases. Where nothing is selected there is no index and no difference: NaN, never 0 or 1. Examples that one side
cannot estimate are left out. Small sets make a jumpy index.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memfluence.estimators import Influence, RealInfluence
from memfluence.findings._selection import tested_blocks

MEMORIZATION = np.arange(1, 21) / 20  # thresholds to look at: 0.05, 0.1, ..., 1
INFLUENCE = np.arange(5, 61) / 100  # 0.05, 0.06, ..., 0.6
BYTES_AT_ONCE = 40 * 2**22  # two blocks of estimates, what is selected from them and what that takes


class Part(NamedTuple):
    """Estimates of both sides, of one shape, and which of them each side may select (whatever broadcasts to it)."""

    first: np.ndarray
    second: np.ndarray
    first_may: np.ndarray | np.bool
    second_may: np.ndarray | np.bool


@dataclass(frozen=True, eq=False)
class Agreement:
    """The selections of two sides at each threshold, compared; all arrays are (thresholds,)."""

    thresholds: np.ndarray  # ascending
    first: np.ndarray  # int64, how many the first side selects
    second: np.ndarray
    shared: np.ndarray  # by both
    difference: np.ndarray  # mean |first - second| over what either selects; NaN where that is nothing

    @property
    def either(self) -> np.ndarray:
        """The number that at least one side selects."""
        return np.asarray(self.first + self.second - self.shared)

    @property
    def jaccard(self) -> np.ndarray:
        """Shared of either; NaN where neither side selects anything."""
        return np.where(self.either > 0, self.shared / np.maximum(self.either, 1), np.nan)


def agreement(parts: Iterable[Part], thresholds: Sequence[float] | np.ndarray) -> Agreement:
    """Count over all parts; thresholds are ascending."""
    levels = np.asarray(thresholds, dtype=float)  # (thresholds,)
    bins = len(levels) + 1  # an estimate is in bin k if it reaches the first k thresholds
    counts, gaps = np.zeros((4, bins), dtype=np.int64), np.zeros(bins)
    for first, second, first_may, second_may in parts:
        looked_at = (first >= levels[0]) & first_may | (second >= levels[0]) & second_may
        hit = np.flatnonzero(looked_at.ravel(order="F"))  # the order of blocks of estimates, which are not copied then
        allowed = [np.broadcast_to(may, first.shape).ravel(order="F")[hit] for may in (first_may, second_may)]
        values = [side.ravel(order="F")[hit] for side in (first, second)]  # (hits,) each
        gap = np.abs(values[0] - values[1])
        known = ~np.isnan(gap)
        reach = [np.where(may, _reached(side, levels), 0)[known] for side, may in zip(values, allowed)]
        reach += [np.minimum(*reach), np.maximum(*reach)]
        for row, one in enumerate(reach):
            counts[row] += np.bincount(one, minlength=bins)
        gaps += np.bincount(reach[3], weights=gap[known], minlength=bins)
    one, other, shared, either = _from_above(counts)
    total = _from_above(gaps)
    return Agreement(levels, one, other, shared, np.where(either > 0, total / np.maximum(either, 1), np.nan))


def influence_agreement(
    first: Influence | RealInfluence,
    second: Influence | RealInfluence,
    memorized: tuple[np.ndarray, np.ndarray],  # (n_train,) bool, by each side
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    thresholds: Sequence[float] | np.ndarray,
    *,
    same_class: bool = True,
) -> Agreement:
    """The agreement of two influence matrices, of which neither is ever held."""

    def parts() -> Iterator[Part]:
        either = np.flatnonzero(memorized[0] | memorized[1])
        for rows, columns in tested_blocks(either, train_labels, test_labels, same_class):
            first.memory.check(min(BYTES_AT_ONCE, 40 * len(rows) * len(columns)), "comparing pairs", "fewer of them")
            values = [side.block(rows, columns) for side in (first, second)]
            yield Part(values[0], values[1], memorized[0][rows, None], memorized[1][rows, None])

    return agreement(parts(), thresholds)


def _reached(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The number of thresholds that each value reaches; a file's float32 is compared with thresholds in float32."""
    same = levels.astype(values.dtype) if values.dtype.kind == "f" else levels
    return np.searchsorted(same, values, side="right")


def _from_above(bins: np.ndarray) -> np.ndarray:
    """Sums over a bin and all above it, without the one that reaches no threshold."""
    return np.asarray(bins[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])
