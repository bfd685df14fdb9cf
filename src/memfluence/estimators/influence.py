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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import Arms, arms
from memfluence.estimators.counts import JointCounter, Method, column_counts, pair_counts
from memfluence.estimators.intervals import Difference, difference
from memfluence.records import Kind, Trials

__all__ = ["ClassBlock", "Influence", "TopK", "influence"]

# Pairs counted at once: 16 MB of counts. Larger arrays cost more in page faults than the counting itself.
TRAIN_AT_ONCE, TEST_AT_ONCE = 2**14, 2**8
DIVIDED_AT_ONCE = 2**15  # pairs whose divisions stay in the cache


@dataclass(frozen=True, eq=False)
class ClassBlock:
    """Influence of a class's training examples on its test examples."""

    label: int
    train: np.ndarray  # (rows,) indices, ascending
    test: np.ndarray  # (columns,) indices, ascending
    values: np.ndarray  # (rows, columns)


@dataclass(frozen=True, eq=False)
class TopK:
    """The most helpful training examples of each chosen test example, best first, ties to the lower index.

    Where fewer than k training examples have an estimate, the rest is index -1 and value NaN.
    """

    test: np.ndarray  # (columns,) indices
    index: np.ndarray  # (columns, k) int64, training examples
    value: np.ndarray  # (columns, k)


def influence(
    trials: Trials, kinds: Sequence[Kind], keep: float | None = None, *, method: Method = "auto"
) -> "Influence":
    """The influence estimates of one keep fraction, computed as they are asked for."""
    return Influence(arms(trials, kinds, keep), method=method)


class Influence:
    """Influence estimates from chosen arms: the matrix, parts of it, single pairs, or the largest per test example.

    `train` and `test` are indices (or boolean masks); None means all. Their order is kept.
    """

    def __init__(self, arms: Arms, *, method: Method = "auto") -> None:
        self.arms = arms
        self.n_train, self.n_test = arms.n_train, arms.n_test
        self._counters = [
            JointCounter(trials.mask, trials.test_correct, self.n_train, self.n_test, method=method)
            for trials in ([arms.in_trials] if arms.shared else [arms.in_trials, arms.out_trials])
        ]
        self._correct_out = column_counts(arms.out_trials.test_correct, self.n_test)  # (n_test,)

    def block(self, train: Any = None, test: Any = None, *, dtype: Any = np.float64) -> np.ndarray:
        """Estimates of the chosen rows and columns, (train, test); all of them by default.

        In Fortran order: the values of one test example lie together. They are computed in float64 and then rounded to
        `dtype`.
        """
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        values = np.empty((len(columns), len(rows)), dtype=dtype).T  # (train, test)
        for some_rows, some_columns in _tiles(len(rows), len(columns)):
            self._fill(values[some_rows, some_columns], rows[some_rows], columns[some_columns])
        return values

    def block_with_errors(self, train: Any = None, test: Any = None) -> Difference:
        """Estimates of the chosen rows and columns with standard errors and 95% intervals, each (train, test)."""
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        four = [np.empty((len(columns), len(rows))).T for _ in range(4)]  # (train, test) each
        for some_rows, some_columns in _tiles(len(rows), len(columns)):
            train_part, test_part = rows[some_rows], columns[some_columns]
            n_in, n_out = self._counts(train_part, test_part)
            part = self._difference(n_in, n_out, train_part[:, None], test_part[None, :])
            for whole, found in zip(four, (part.value, part.stderr, part.lower, part.upper)):
                whole[some_rows, some_columns] = found
        return Difference(*four)

    def at(self, train: Any, test: Any) -> Difference:
        """Estimates at pairs (train[p], test[p]) with standard errors and 95% intervals, each (pairs,)."""
        train, test = self._indices(train, "train"), self._indices(test, "test")
        if len(train) != len(test):
            raise InputError(
                f"Pairs need as many training as test indices; got {len(train)} and {len(test)}; give one each."
            )
        in_trials, out_trials = self.arms.in_trials, self.arms.out_trials
        n_in = pair_counts(in_trials.mask, in_trials.test_correct, train, test)  # (pairs,)
        n_out = n_in if self.arms.shared else pair_counts(out_trials.mask, out_trials.test_correct, train, test)
        return self._difference(n_in, n_out, train, test)

    def class_blocks(self, train_labels: np.ndarray, test_labels: np.ndarray) -> Iterator[ClassBlock]:
        """One block per class, ascending by label; a class that a split lacks has no rows or no columns."""
        for label in np.union1d(train_labels, test_labels):
            train, test = np.flatnonzero(train_labels == label), np.flatnonzero(test_labels == label)
            yield ClassBlock(int(label), train, test, self.block(train, test))

    def top_k(self, k: int, test: Any = None) -> TopK:
        """The k most helpful training examples of each chosen test example, without holding the matrix."""
        if k < 1:
            raise InputError(f"top_k must be at least 1; got {k}.")
        columns = self._indices(test, "test")
        index = np.full((len(columns), k), -1, dtype=np.int64)
        value = np.full((len(columns), k), np.nan)
        for some_rows, some_columns in _tiles(self.n_train, len(columns)):
            rows = np.arange(some_rows.start, some_rows.stop)
            found = self.block(rows, columns[some_columns]).T  # (test, train)
            for column, values in enumerate(found, start=some_columns.start):
                # Rows come in ascending order, so an equal value of a later row never displaces an earlier one.
                best = _largest(values, k, above=value[column, -1])
                if len(best):
                    merged_value = np.concatenate([value[column], values[best]])
                    merged_index = np.concatenate([index[column], rows[best]])
                    first = np.argsort(-merged_value, kind="stable")[:k]  # NaN goes last
                    value[column], index[column] = merged_value[first], merged_index[first]
        return TopK(columns, index, value)

    def _indices(self, chosen: Any, split: str) -> np.ndarray:
        n = self.n_train if split == "train" else self.n_test
        if chosen is None:
            return np.arange(n)
        indices = np.atleast_1d(np.asarray(chosen))
        if indices.dtype == bool and indices.shape == (n,):
            return np.flatnonzero(indices)
        if indices.size == 0:
            return np.empty(0, dtype=np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise InputError(
                f"The {split} examples must be a flat list of indices; got {indices.dtype} of shape {indices.shape}."
            )
        if indices.min() < 0 or indices.max() >= n:
            wrong = int(indices[(indices < 0) | (indices >= n)][0])
            raise InputError(f"There is no {split} example {wrong}; choose indices from 0 to {n - 1}.")
        return indices.astype(np.int64)

    def _counts(self, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """N11 in the in-arm and in the out-arm, (train, test) int32 each."""
        counts = [counter.block(train, test) for counter in self._counters]
        return counts[0], counts[-1]

    def _fill(self, values: np.ndarray, train: np.ndarray, test: np.ndarray) -> None:
        """Write the estimates of a tile into `values` (train, test), which is in Fortran order."""
        n_in, n_out = (counts.T for counts in self._counts(train, test))  # (test, train)
        trials_in, trials_out = (kept[train].astype(float) for kept in (self.arms.trials_in, self.arms.trials_out))
        correct_out = self._correct_out[test, None]  # (test, 1)
        columns_at_once = max(1, DIVIDED_AT_ONCE // max(1, len(train)))
        for start in range(0, len(test), columns_at_once):
            some = slice(start, start + columns_at_once)
            with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: the trials cannot say
                part = n_in[some] / trials_in  # (some test, train) float64
                part -= (correct_out[some] - n_out[some]) / trials_out
            values.T[some] = part

    def _difference(self, n_in: np.ndarray, n_out: np.ndarray, train: np.ndarray, test: np.ndarray) -> Difference:
        return difference(
            n_in,
            self.arms.trials_in[train],
            self._correct_out[test] - n_out,
            self.arms.trials_out[train],
            sample_in=self.arms.sample_in[train],
            sample_out=self.arms.sample_out[train],
        )


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of bounded size; for each block of columns the rows in ascending order."""
    for column in range(0, columns, TEST_AT_ONCE):
        for row in range(0, rows, TRAIN_AT_ONCE):
            yield (
                slice(row, min(rows, row + TRAIN_AT_ONCE)),
                slice(column, min(columns, column + TEST_AT_ONCE)),
            )


def _largest(values: np.ndarray, k: int, above: float) -> np.ndarray:
    """Positions of the k largest values above `above` (if NaN: of all), best first, ties to the lower; never NaN."""
    candidates = np.flatnonzero(~np.isnan(values) if np.isnan(above) else values > above)
    if len(candidates) > k:
        kth = -np.partition(-values[candidates], k - 1)[k - 1]
        candidates = candidates[values[candidates] >= kth]
    return candidates[np.argsort(-values[candidates], kind="stable")[:k]]
