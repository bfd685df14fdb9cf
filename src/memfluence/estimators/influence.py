"""Influence: how much more often models are right on a test example when they saw a training example.

Definition (the paper's Sec. 2). For a learner A, subsets I of size m - 1 drawn from all training examples but i:

    infl_m(i, j) = E_I( P[h(x'_j) = y'_j, h ~ A(I + i)] - P[h(x'_j) = y'_j, h ~ A(I)] )

Estimator (Algorithm 1). The proportion of models right on j among the trials that kept i, minus that among those
that left i out: N11 / trials_in - (right - N11) / trials_out, two divisions of exact integers in float64.

What it estimates depends on the design, and the difference is real:
- `lemma`: the first term from trials of size m, the second from trials of size m - 1. Unbiased for infl_m.
- `fixed` (and `balanced`): both terms from trials of size m. A held-out model then has m *other* examples, where
  the definition has m - 1, so the target is P[right | i in I] - P[right | i not in I] with |I| = m: infl_m less what
  one more random example adds to the accuracy on j. A consequence: for each j these targets sum to exactly 0 over all
  training examples, so they say who helps more than the average example. The difference is real but small: 0.0007 on
  average for 60 training examples (`tests/estimators/test_truth.py`), less for more. The paper uses this design, at
  half the price (App. A, Remark).
- `bernoulli`: as `lemma`, with the sizes of the subsets spread around keep * n_train.

Variance. p(1-p)/trials_in + q(1-q)/trials_out for one pair; standard errors and intervals as in
`estimators/intervals.py`. Pairs share their trials: what is counted or averaged over pairs needs a bootstrap or a
permutation of trials.

Failure cases. NaN in the whole row of an example never kept or never left out. With few trials the largest values
are noise: of n_train * n_test estimates some are large by chance (`findings/pairs.py` says how many).

Axes are (train, test) everywhere; positive means that the training example helps.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from memfluence.estimators._arms import Arms, arms
from memfluence.estimators._estimates import Block, Estimates, TopK, UseErrors, UseTile
from memfluence.estimators.counts import (
    JointCounter,
    Method,
    Order,
    UseCounts,
    column_counts,
    each_tile,
    kernels,
    loaded_kernels,
    pair_counts,
)
from memfluence.estimators.intervals import Difference, clustered_difference, difference
from memfluence.estimators.kernels.int8 import DeviceScan
from memfluence.estimators.memory import Memory
from memfluence.records import Kind, Trials

Scan = Callable[[Arms, Sequence[Block], float], list[Block]]  # pairs of blocks at a threshold, found elsewhere

WORK_BYTES = 120 * 2**20  # of tiles of the matrix product
DIVIDED_AT_ONCE = 2**15  # pairs whose divisions stay in the cache


def influence(
    trials: Trials,
    kinds: Sequence[Kind],
    keep: float | None = None,
    *,
    method: Method = "auto",
    memory: str | int | Memory | None = None,
    device: str = "cpu",
) -> "Influence":
    """The influence estimates of one keep fraction, computed as they are asked for.

    `memory` caps what the process may hold, such as "2GB"; what does not fit is an error that says what would.
    `device="cuda"` scans for the largest estimates and for a threshold on a GPU, with the same results.
    """
    return Influence(arms(trials, kinds, keep), method=method, memory=memory, device=device)


class Influence(Estimates):
    """Influence estimates from chosen arms: the matrix, parts of it, single pairs, the largest, those at a threshold.

    `train` and `test` are indices (or boolean masks); None means all. Their order is kept.
    """

    def __init__(
        self,
        arms: Arms,
        *,
        method: Method = "auto",
        memory: str | int | Memory | None = None,
        device: str = "cpu",
        scan: Scan | None = None,
    ) -> None:
        self.arms, self.device, self._scan = arms, device, scan
        self.n_train, self.n_test = arms.n_train, arms.n_test
        self.memory = Memory.of(memory)
        self._counters = [
            JointCounter(trials.mask, trials.test_correct, self.n_train, self.n_test, method=method)
            for trials in arms.parts
        ]
        self._correct_out = column_counts(arms.out_trials.test_correct, self.n_test)  # (n_test,)
        self._correct_in = (
            self._correct_out if arms.shared else column_counts(arms.in_trials.test_correct, self.n_test)
        )  # (n_test,)

    def permuted(self, rng: np.random.Generator) -> "Influence":
        """The same from masks dealt out anew (`Arms.permuted`): what is left is chance."""
        return Influence(self.arms.permuted(rng), memory=self.memory, device=self.device)

    def at(self, train: Any, test: Any) -> Difference:
        """Estimates at pairs (train[p], test[p]) with standard errors and 95% intervals, each (pairs,)."""
        train, test = self._pairs(train, test)
        in_trials, out_trials = self.arms.in_trials, self.arms.out_trials
        if in_trials.cluster > 1 and self.arms.shared:
            return clustered_difference(self.arms, in_trials.test_correct, train, test)
        n_in = pair_counts(in_trials.mask, in_trials.test_correct, train, test)  # (pairs,)
        n_out = n_in if self.arms.shared else pair_counts(out_trials.mask, out_trials.test_correct, train, test)
        return self._difference(n_in, n_out, train, test)

    def counts(self, train: Any = None, test: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The integers behind `block`: models right and models in all, first of those that kept the example, then of
        those that did not. (train, test) each; the numbers of models have one column, since test examples share them.
        """
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        self.memory.check_matrix(len(rows), len(columns), 2 * 4)
        n_in, n_out = (np.empty((len(columns), len(rows)), np.int32) for _ in range(2))  # (test, train)

        def keep(counts: Sequence[np.ndarray], some_rows: slice, some_columns: slice) -> None:
            n_in[some_columns, some_rows], n_out[some_columns, some_rows] = counts[0], counts[-1]

        self._count(rows, columns, keep)
        trials_in, trials_out = self.arms.trials_in[rows, None], self.arms.trials_out[rows, None]
        return n_in.T, trials_in, self._correct_out[columns] - n_out.T, trials_out

    @cached_property
    def _on_device(self) -> DeviceScan:
        return DeviceScan(self.arms, self.device)

    def top_k(self, k: int, test: Any = None) -> TopK:
        """The k most helpful training examples of each chosen test example, without holding the matrix."""
        if self.device == "cpu" or k < 1:
            return super().top_k(k, test)
        columns = self._indices(test, "test")
        index, value, _, _ = self._on_device.scan(np.arange(self.n_train), columns, k=k)
        return TopK(columns, index, value)

    def _select(self, blocks: Sequence[Block], threshold: float) -> list[Block]:
        if self._scan is not None:
            return self._scan(self.arms, blocks, threshold)
        if self.device == "cpu":
            return super()._select(blocks, threshold)
        return [self._on_device.scan(*block, threshold=threshold)[2:] for block in blocks]

    def _prepare(self, pairs: int) -> bool:
        self._check_work()
        return None not in [counter.packed(pairs) for counter in self._counters]

    def _check_work(self) -> None:
        """Refuse to count where what that takes, beside its results, does not fit."""
        if self.memory.limit is not None:
            loaded = kernels()  # which takes memory, too
            work = (
                WORK_BYTES if loaded is None else loaded.work_bytes(max(counter.trials for counter in self._counters))
            )
            words = sum(counter.still_needed for counter in self._counters)
            self.memory.check(work + words, "counting in words of 64 trials", "fewer trials or threads")

    def _count(
        self, train: np.ndarray, test: np.ndarray, use: UseCounts, *, of: Order = "either", threads: int | None = None
    ) -> None:
        if threads is None:  # otherwise `_prepare` has, for all threads together
            self._check_work()
        each_tile(self._counters, train, test, use, of=of, threads=threads)

    def _tiles(
        self, train: np.ndarray, test: np.ndarray, use: UseTile, *, of: Order = "either", threads: int | None = None
    ) -> None:
        def divide(counts: Sequence[np.ndarray], rows: slice, columns: slice) -> None:
            values = np.empty(counts[0].shape)  # (test, train)
            self._divide(counts, train[rows], test[columns], values, 0, 0)
            use(values, rows, columns)

        self._count(train, test, divide, of=of, threads=threads)

    def _differences(self, train: np.ndarray, test: np.ndarray, use: UseErrors) -> None:
        def measure(counts: Sequence[np.ndarray], rows: slice, columns: slice) -> None:
            use(self._difference(counts[0], counts[-1], train[rows], test[columns, None]), rows, columns)

        self._count(train, test, measure)

    def _fill(self, values: np.ndarray, train: np.ndarray, test: np.ndarray, threads: int | None = None) -> None:
        def divide(counts: Sequence[np.ndarray], rows: slice, columns: slice) -> None:
            self._divide(counts, train[rows], test[columns], values, columns.start, rows.start)

        self._count(train, test, divide, threads=threads)

    def _divide(
        self,
        counts: Sequence[np.ndarray],  # (test, train) int32, of the in-arm and of the out-arm
        train: np.ndarray,
        test: np.ndarray,
        values: np.ndarray,  # (all test, all train)
        first: int,
        column: int,
    ) -> None:
        """Write the estimates of a tile into `values`, at (first, column) and on."""
        trials_in, trials_out = (kept[train].astype(float) for kept in (self.arms.trials_in, self.arms.trials_out))
        correct_out = self._correct_out[test].astype(float)  # (test,)
        loaded = loaded_kernels()
        if loaded is not None and values.dtype in (np.float32, np.float64) and values.flags.c_contiguous:
            loaded.compiled.divide(counts[0], counts[-1], trials_in, trials_out, correct_out, values, first, column)
            return
        columns_at_once = max(1, DIVIDED_AT_ONCE // max(1, len(train)))
        for start in range(0, len(test), columns_at_once):
            some = slice(start, min(len(test), start + columns_at_once))
            with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: the trials cannot say
                part = counts[0][some] / trials_in  # (some test, train) float64
                part -= (correct_out[some, None] - counts[-1][some]) / trials_out
            values[first + some.start : first + some.stop, column : column + len(train)] = part

    def _can_reach(self, train: np.ndarray, test: np.ndarray, threshold: float) -> np.ndarray:
        """Test examples right, and wrong, often enough.

        The estimate grows with the number of right models that kept the example: at most all of trials_in, or all that
        are right. Division and subtraction round monotonically, so the estimate computed from that number is an upper
        bound to the last bit.
        """
        a, b, _ = _distinct(self.arms.trials_in[train], self.arms.trials_out[train])  # (distinct,) each
        kept_out = len(self.arms.out_trials) - b
        right_in, right_out, which = _distinct(self._correct_in[test], self._correct_out[test])
        reached = np.zeros(len(right_in), dtype=bool)
        with np.errstate(invalid="ignore"):
            for one in range(len(a)):
                best = np.minimum(a[one], right_in) / a[one] - np.maximum(0, right_out - kept_out[one]) / b[one]
                reached |= best >= threshold
        return np.asarray(test[reached[which]])

    def _difference(self, n_in: np.ndarray, n_out: np.ndarray, train: np.ndarray, test: np.ndarray) -> Difference:
        return difference(
            n_in,
            self.arms.trials_in[train],
            self._correct_out[test] - n_out,
            self.arms.trials_out[train],
            sample_in=self.arms.sample_in[train],
            sample_out=self.arms.sample_out[train],
        )


def _distinct(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct pairs of two arrays of counts, and which of them each pair is."""
    both, which = np.unique(first.astype(np.int64) << 32 | second, return_inverse=True)
    return both >> 32, both & (2**32 - 1), which
