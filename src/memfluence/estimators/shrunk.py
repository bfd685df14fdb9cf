"""Influence shrunk towards 0 by empirical Bayes: most pairs have next to none, and the estimates themselves say so.

Definition. The target is that of `influence.py`. The estimate is the mean of the influence given Algorithm 1's value v
and error s, if influences are drawn from a mixture of normal distributions around 0 whose weights are those that make
the estimates at hand likeliest (adaptive shrinkage: Stephens 2017, Biostatistics 18, 275-294):

    v ~ N(influence, s^2),    influence ~ sum over k of w_k N(0, SCALES[k]^2)

Pairs within a class and pairs across classes have a mixture each, fitted to a fixed sample of pairs. s is the error
that holds where the training example does not matter, from the test example's overall accuracy with one success and one
failure added.

Bias. Each value is pulled towards 0, weak ones nearly all the way, strong ones little. The mean squared error over all
pairs falls, several times over where trials are few; that on the strong pairs rises. So: right for means over pairs and
for prediction; wrong for asking how strong one given pair is. `docs/variance.md` has both figures.

Variance. `stderr` is the standard deviation of the mixture given v, and the 95% interval value -+ 1.96 stderr holds on
average over pairs, not for each.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from memfluence.estimators._arms import arms
from memfluence.estimators._estimates import Estimates
from memfluence.estimators.counts import column_counts
from memfluence.estimators.influence import Influence
from memfluence.estimators.intervals import Z95, Difference
from memfluence.estimators.memory import Memory
from memfluence.records import Kind, Trials

__all__ = ["ShrunkInfluence", "prior_weights", "shrink", "shrunk_influence"]

SCALES = np.array([0.0, *0.0025 * 2 ** np.arange(0, 8.5, 0.5)])  # (components,) 0, then 0.0025 to 0.64
SAMPLE = 200_000  # pairs that a mixture is fitted to
STEPS = 200  # of expectation and maximization
_PAIRS_AT_ONCE = 2**15


def prior_weights(value: np.ndarray, stderr: np.ndarray) -> np.ndarray:
    """The weights (components,) that make the values (pairs,) likeliest; all on 0 where there are none."""
    known = np.isfinite(value) & (stderr > 0)
    likelihood = _likelihood(value[known], stderr[known])  # (pairs, components)
    weights = np.full(len(SCALES), 1 / len(SCALES))
    if not len(likelihood):
        return np.asarray(np.eye(1, len(SCALES))[0])
    for _ in range(STEPS):
        weights = weights * (likelihood.T @ (1 / (likelihood @ weights))) / len(likelihood)
    return np.asarray(weights)


def shrink(value: np.ndarray, stderr: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the influence given each value, of the values' shape; NaN stays NaN."""
    flat, errors = np.ravel(value), np.ravel(np.broadcast_to(stderr, value.shape))
    mean, deviation = np.empty(flat.shape), np.empty(flat.shape)
    for start in range(0, len(flat), _PAIRS_AT_ONCE):
        some = slice(start, start + _PAIRS_AT_ONCE)
        chance = _likelihood(flat[some], errors[some]) * weights  # (pairs, components)
        chance /= chance.sum(axis=1, keepdims=True)
        factor = SCALES**2 / (SCALES**2 + errors[some, None] ** 2)  # (pairs, components)
        means = factor * flat[some, None]
        mean[some] = (chance * means).sum(axis=1)
        with np.errstate(invalid="ignore"):  # an empty arm has an infinite error
            second = (chance * (means**2 + factor * errors[some, None] ** 2)).sum(axis=1)
        deviation[some] = np.sqrt(np.maximum(second - mean[some] ** 2, 0))
    return mean.reshape(value.shape), deviation.reshape(value.shape)


def _likelihood(value: np.ndarray, stderr: np.ndarray) -> np.ndarray:
    """Of each value under each component, up to a factor of its own, (pairs, components)."""
    variance = SCALES**2 + stderr[:, None] ** 2
    log = -0.5 * (value[:, None] ** 2 / variance + np.log(variance))
    return np.asarray(np.exp(log - log.max(axis=1, keepdims=True)))


def shrunk_influence(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    keep: float | None = None,
    *,
    memory: str | int | Memory | None = None,
) -> "ShrunkInfluence":
    """Shrunk influence of one keep fraction, computed as it is asked for."""
    return ShrunkInfluence(Influence(arms(trials, kinds, keep), memory=memory), train_labels, test_labels)


class ShrunkInfluence(Estimates):
    """Shrunk influence for all pairs: the matrix, parts of it, with errors, the largest."""

    def __init__(self, plain: Influence, train_labels: np.ndarray, test_labels: np.ndarray) -> None:
        self.plain, self.memory = plain, plain.memory
        self.n_train, self.n_test = plain.n_train, plain.n_test
        self._labels = train_labels, test_labels
        trials = plain.arms.out_trials
        right = (column_counts(trials.test_correct, self.n_test) + 1) / (len(trials) + 2)  # (n_test,)
        self._deviation = np.sqrt(right * (1 - right))  # (n_test,)
        with np.errstate(divide="ignore"):  # an empty arm has an infinite error and no value
            self._size = np.sqrt(1 / plain.arms.sample_in + 1 / plain.arms.sample_out)  # (n_train,)
        self._weights = [self._fitted(same) for same in (False, True)]  # across classes, within a class

    def _fitted(self, same: bool) -> np.ndarray:
        """The mixture of pairs across classes or within one, from up to SAMPLE of them, the same on every call."""
        rng = np.random.default_rng(0)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        needed = SAMPLE
        for j in rng.permutation(self.n_test):
            rows = np.flatnonzero((self._labels[0] == self._labels[1][j]) == same)
            rows = rows[:: max(1, len(rows) // 1000)][:needed]  # some of many test examples, not all of a few
            if len(rows):
                found.append((rows, np.full(len(rows), j)))
                needed -= len(rows)
            if needed <= 0:
                break
        if not found:
            return prior_weights(np.empty(0), np.empty(0))
        train, test = (np.concatenate(part) for part in zip(*found))
        return prior_weights(self.plain.at(train, test).value, self._size[train] * self._deviation[test])

    def block_with_errors(self, train: Any = None, test: Any = None) -> Difference:
        """Estimates of the chosen rows and columns with standard errors and 95% intervals, each (train, test)."""
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        self.memory.check_matrix(len(rows), len(columns), 5 * 8)
        value, stderr = (part.T for part in self._shrunk(self.plain.block(rows, columns).T, rows, columns))
        return Difference(value, stderr, value - Z95 * stderr, value + Z95 * stderr)

    def _shrunk(self, value: np.ndarray, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of estimates (test, train)."""
        error = self._deviation[test][:, None] * self._size[train]  # (test, train)
        same = self._labels[1][test][:, None] == self._labels[0][train]
        mean, deviation = np.empty(value.shape), np.empty(value.shape)
        for chosen, weights in zip((~same, same), self._weights):
            mean[chosen], deviation[chosen] = shrink(value[chosen], error[chosen], weights)
        return mean, deviation

    def _prepare(self, pairs: int) -> bool:
        return self.plain._prepare(pairs)

    def _tiles(
        self,
        train: np.ndarray,
        test: np.ndarray,
        use: Callable[[np.ndarray, slice, slice], None],
        *,
        of: Literal["test", "train", "either"] = "either",
        threads: int | None = None,
    ) -> None:
        def shrunk(values: np.ndarray, rows: slice, columns: slice) -> None:
            use(self._shrunk(values, train[rows], test[columns])[0], rows, columns)

        self.plain._tiles(train, test, shrunk, of=of, threads=threads)
