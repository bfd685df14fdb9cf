"""Memorization and influence of real-valued outcomes: margins, log-odds, losses, a metric of the user's own.

Definition. The same as for right and wrong, with the mean of an outcome v in place of the share of right models:

    mem(i) = E[v_i | i in I] - E[v_i | i not in I]        infl(i, j) = E[v_j | i in I] - E[v_j | i not in I]

where v_j is what the trained model gives test example j. With v = 1 for right and 0 for wrong these are the values of
`memorization.py` and `influence.py`. Positive means that the example raises v: for a loss that is harm, not help.

Estimator. The mean over the trials that kept i minus that over those that left it out (Algorithm 1). Outcomes are
centred on their mean over all trials and summed in float64, so values agree with a plain computation to about 1e-15
of the outcomes' spread, not to the last bit: the order of a sum depends on the tile.

Variance. Welch's: s_in**2 / trials_in + s_out**2 / trials_out with the unbiased variances of each arm; the 95% interval
has Student's quantile with Welch and Satterthwaite's degrees of freedom, value -+ t stderr, and so has the one-sided
p-value of a difference of at most a null. Where several models share a mask, the numbers of masks take the place of the
numbers of trials, as in `intervals.py`. `docs/statistics.md` has the coverage: the normal quantile covers 90 to 92%
with 14 and 6 models in the arms where Student's covers 93 to 94%; with 70 and 30 that is 94% and more, but 91% where
outcomes are as skewed as a squared error about 0.

Failure cases. The value is NaN where an arm is empty, its error where an arm has a single trial, and everything about
an example whose outcome is NaN or infinite in some trial. Heavy tails (a loss that explodes) make the mean itself a
poor summary, and an interval too short. Stored margins and log-odds are float16: three digits.

Paper: Sec. 2 with the indicator replaced by v; log-odds are what membership inference compares.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import Arms, arms
from memfluence.estimators._estimates import Estimates, TopK, TopTests, UseErrors, UseTile
from memfluence.estimators.counts import Order, bits_at, tiles
from memfluence.estimators.intervals import Difference, Welch
from memfluence.estimators.memorization import Memorization
from memfluence.estimators.memory import Memory
from memfluence.records import Kind, Trials

Ranked = TypeVar("Ranked", bound=TopK | TopTests)

# A tile of the matrix products: 67 MB of mask and 17 MB of outcomes in float64.
TRIALS_AT_ONCE, TRAIN_AT_ONCE, TEST_AT_ONCE = 4096, 2048, 512


def held_out_means(trials: Trials, kinds: Sequence[Kind], outcome: np.ndarray, keep: float | None = None) -> Difference:
    """The mean outcome (n_train,) of each example over the models that left it out, with its error and interval."""
    from scipy.special import stdtrit

    chosen = arms(trials, kinds, keep)
    centre, _, (mean, variance) = means_of_arms(trials, chosen, outcome)
    with np.errstate(invalid="ignore", divide="ignore"):
        stderr = np.sqrt(variance / chosen.sample_out)
        reach = stdtrit(chosen.sample_out - 1.0, 0.975) * stderr
    return Difference(mean + centre, stderr, mean + centre - reach, mean + centre + reach)


def real_memorization(
    trials: Trials, kinds: Sequence[Kind], outcome: np.ndarray, keep: float | None = None
) -> Memorization:
    """Memorization measured by `outcome` (trials, n_train), from the trials of one keep fraction."""
    chosen = arms(trials, kinds, keep)
    centre, (mean_in, variance_in), (mean_out, variance_out) = means_of_arms(trials, chosen, outcome)
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty arm: NaN from here on
        found = Welch.of(mean_in - mean_out, (variance_in, variance_out), (chosen.sample_in, chosen.sample_out))
    means = {"mean_in": mean_in + centre, "mean_out": mean_out + centre, "p_value": found.p_values(0.0)}
    return Memorization(**vars(found.interval()), **means, **chosen.counts)


def means_of_arms(trials: Trials, chosen: Arms, outcome: np.ndarray) -> tuple[Any, Any, Any]:
    """A centre (n_train,), and the mean less the centre and the variance of outcomes if kept, and if left out."""
    _check(outcome, len(trials), trials.n_train, "n_train")
    centre = _mean(outcome, np.union1d(_rows(trials, chosen.in_trials), _rows(trials, chosen.out_trials)))  # (n_train,)
    if outcome.dtype.kind in "iu":
        centre = np.round(centre)  # so that sums are exact, and arms with equal means differ by 0
    sides = []
    for arm, is_in in ((chosen.in_trials, True), (chosen.out_trials, False)):
        sums = np.zeros((3, trials.n_train))  # trials, outcomes and their squares, about the mean of all
        for row, place in enumerate(_rows(trials, arm)):
            kept = np.unpackbits(arm.mask[row], count=trials.n_train, bitorder="little").astype(bool)
            used = kept if is_in else ~kept  # (n_train,)
            part = np.where(used, outcome[place].astype(float) - centre, 0.0)
            sums += np.stack([used, part, part * part])
        sides.append(_mean_and_variance(sums[1], sums[2], sums[0]))
    return centre, sides[0], sides[1]


def real_influence(
    trials: Trials,
    kinds: Sequence[Kind],
    outcome: np.ndarray,
    keep: float | None = None,
    *,
    memory: str | int | Memory | None = None,
) -> "RealInfluence":
    """Influence on `outcome` (trials, n_test), from the trials of one keep fraction, computed as it is asked for."""
    _check(outcome, len(trials), trials.n_test, "n_test")
    chosen = arms(trials, kinds, keep)
    rows = [_rows(trials, arm) for arm in (chosen.in_trials, chosen.out_trials)]
    return RealInfluence(chosen, outcome, rows, memory=memory)


class RealInfluence(Estimates):
    """Influence on a real-valued outcome: the matrix, parts of it, single pairs, the largest, those at a threshold.

    `outcome` (trials, n_test) has a row for each trial of the run; `rows` says which are those of the two arms.
    """

    def __init__(
        self,
        arms: Arms,
        outcome: np.ndarray,
        rows: Sequence[np.ndarray],
        *,
        memory: str | int | Memory | None = None,
    ) -> None:
        self.arms, self.memory = arms, Memory.of(memory)
        self.n_train, self.n_test = arms.n_train, arms.n_test
        self._outcome, self._rows = outcome, rows
        self._centre = _mean(outcome, np.union1d(*rows))  # (n_test,)

    def permuted(self, rng: np.random.Generator) -> "RealInfluence":
        """The same from masks dealt out anew (`Arms.permuted`): what is left is chance."""
        return RealInfluence(self.arms.permuted(rng), self._outcome, self._rows, memory=self.memory)

    def at(self, train: Any, test: Any) -> Difference:
        """Estimates at pairs (train[p], test[p]) with standard errors and 95% intervals, each (pairs,)."""
        train, test = self._pairs(train, test)
        four = np.empty((4, len(train)))
        for j in np.unique(test):
            pairs = np.flatnonzero(test == j)
            found = self.block_with_errors(train[pairs], [j])
            four[:, pairs] = [part[:, 0] for part in (found.value, found.stderr, found.lower, found.upper)]
        return Difference(*four)

    def p_values(self, train: Any, test: Any, null: float = 0.0) -> np.ndarray:
        """One-sided p-values of an influence of at most `null`, (train, test)."""
        rows, columns = self._indices(train, "train"), self._indices(test, "test")
        self.memory.check_matrix(len(rows), len(columns), 8)
        whole = np.empty((len(columns), len(rows)))
        for some, others in tiles(rows, columns, TRAIN_AT_ONCE, TEST_AT_ONCE):
            whole[others, some] = self._welch(rows[some], columns[others]).p_values(null)
        return whole.T

    def means_at(self, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean outcomes at pairs (train[p], test[p]), of the models that kept the example and of those that did not."""
        means = np.empty((2, len(train)))
        for j in np.unique(test):
            pairs = np.flatnonzero(test == j)
            for side, (mean, _) in enumerate(self._means(train[pairs], np.array([j]))):
                means[side, pairs] = mean[0] + self._centre[j]
        return means[0], means[1]

    def _tiles(
        self, train: np.ndarray, test: np.ndarray, use: UseTile, *, of: Order = "either", threads: int | None = None
    ) -> None:
        self._differences(train, test, lambda found, rows, columns: use(found.value, rows, columns))

    def _differences(self, train: np.ndarray, test: np.ndarray, use: UseErrors) -> None:
        for rows, columns in tiles(train, test, TRAIN_AT_ONCE, TEST_AT_ONCE):
            use(self._welch(train[rows], test[columns]).interval(), rows, columns)

    def _welch(self, train: np.ndarray, test: np.ndarray) -> Welch:
        """The differences of a tile, (test, train)."""
        (mean_in, variance_in), (mean_out, variance_out) = self._means(train, test)
        samples = self.arms.sample_in[train], self.arms.sample_out[train]
        with np.errstate(invalid="ignore", divide="ignore"):
            return Welch.of(mean_in - mean_out, (variance_in, variance_out), samples)

    def _means(self, train: np.ndarray, test: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and variance in the in-arm and in the out-arm, (test, train) each."""
        sides = []
        for arm, places, is_in in zip((self.arms.in_trials, self.arms.out_trials), self._rows, (True, False)):
            sums, squares = np.zeros((2, len(test), len(train)))
            for start in range(0, len(arm), TRIALS_AT_ONCE):
                some = slice(start, start + TRIALS_AT_ONCE)
                used = bits_at(arm.mask[some], train) == is_in  # (some trials, train)
                outcome = self._outcome[np.ix_(places[some], test)].astype(float)  # (some trials, test)
                weights = used.astype(float)
                with np.errstate(invalid="ignore"):  # infinite outcomes have no mean: NaN
                    outcome -= self._centre[test]
                    sums += outcome.T @ weights
                    squares += (outcome * outcome).T @ weights
            counted = (self.arms.trials_in if is_in else self.arms.trials_out)[train]
            sides.append(_mean_and_variance(sums, squares, counted))
        return sides


def with_ties_by(found: Ranked, finer: RealInfluence) -> Ranked:
    """The same examples in the same order, but for ties: the larger finer estimate goes first, then the lower index."""
    tied = np.zeros(found.value.shape, dtype=bool)
    equal = found.value[:, 1:] == found.value[:, :-1]
    tied[:, 1:] |= equal
    tied[:, :-1] |= equal
    row, _ = np.nonzero(tied)
    pairs = (found.index[tied], found.test[row]) if isinstance(found, TopK) else (found.train[row], found.index[tied])
    ties = np.zeros(found.value.shape)
    ties[tied] = finer.at(*pairs).value
    order = np.lexsort((found.index, -ties, -found.value), axis=-1)  # NaN last
    index, value = (np.take_along_axis(one, order, axis=1) for one in (found.index, found.value))
    return replace(found, index=index, value=value)


def _mean_and_variance(sums: np.ndarray, squares: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the unbiased variance, from sums about a centre."""
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty arm has no mean, a single trial no variance
        mean = sums / counts
        variance = np.where(counts > 1, (squares - sums * mean) / (counts - 1), np.nan)
    return mean, np.maximum(variance, 0.0)  # NaN stays; rounding must not make it negative


def _mean(outcome: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Over some trials, (n,) float64, in bounded memory; 0 where there are none."""
    total = np.zeros(outcome.shape[1])
    for row in rows:
        total += outcome[row]
    return total / max(1, len(rows))


def _rows(trials: Trials, arm: Trials) -> np.ndarray:
    """The rows of an arm's trials among all."""
    return np.searchsorted(trials.numbers, arm.numbers)


def _check(outcome: np.ndarray, trials: int, n: int, name: str) -> None:
    if outcome.shape != (trials, n) or outcome.dtype.kind not in "fiub":
        raise InputError(
            f"The outcomes must be numbers of the shape (trials, {name}) = {(trials, n)};"
            f" got {outcome.dtype} of {outcome.shape}."
        )
