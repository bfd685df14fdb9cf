"""Errors of a difference of two proportions, honest at 0 and 1.

Definition. A value is p - q: a model that kept the example is right with probability p, one that did not with
probability q. Its estimate x/a - y/b comes from a and b independent models, of which x and y are right.

Estimators. Agresti and Caffo's (2000, The American Statistician 54, 280-288): add one success and one failure to each
arm, r = (x+1)/(a+2) and s = (y+1)/(b+2). Then
- standard error: e = sqrt(r(1-r)/(a+2) + s(1-s)/(b+2));
- 95% interval: r - s - 1.96 e to r - s + 1.96 e, cut at -1 and 1. It always holds the estimate.
Only error and interval are theirs: the value itself is never shrunk.

Why not Wald's sqrt(p(1-p)/a + q(1-q)/b)? It is 0 whenever both proportions are 0 or 1, so it claims certainty from
a handful of trials. That is no corner case: most models get most examples right, and of the memorization values of
138 real CIFAR-100 trials 42% would have an error of 0.

Why this interval? By measurement (`docs/statistics.md`): with 97 and 41 to 1400 and 600 models and proportions from 0
to 1 it covers at least 94.4% in every cell and is 4% shorter than Newcombe's hybrid score interval, which falls to
92.6% (p = 0.01, q = 1) as Miettinen and Nurminen's does.

Variance. p(1-p)/a + q(1-q)/b, at most 1/(4a) + 1/(4b): with 2000 trials and keep 0.7 a standard error is at most
0.025.

Failure cases.
- An empty arm: NaN, never 0.
- Several models per mask (`repeats`), or masks that are dealt in blocks (`balanced`): outcomes are not independent, and
  a and b in the errors (not in the proportions) are numbers of independent models that would be as sure.
- One interval holds with 95%; the largest of many estimates is biased upwards, and neither interval nor error knows
  that. Pairs share their trials, so errors must not be added up over pairs either.

Trials that are not independent: a jackknife over clusters of trials. Two designs have clusters. Under `repeats` the
models of one mask share it: a cluster is a mask. Under `balanced` masks are dealt so that every example is kept equally
often within a block: a cluster is a block. Clusters are independent of each other, so leaving out one at a time shows
how much the estimate varies, whatever goes on within them.

With d the estimate, d_g the same from all trials but cluster g's, and G clusters,

    V = (G - 1) / G * sum over g of (d_g - mean d_g)^2,

and the design effect is V / (p(1-p)/a + q(1-q)/b): how many times the variance is that of independent trials.

Errors are those above with a and b divided by the design effect, and Student's quantile with G - 1 degrees of
freedom for the interval; the jackknife alone would claim certainty where all models agree. The design effect is held at
1 or more: models that share a mask cannot tell more than independent ones, and balance cannot either, to first order
(each other example is spread over in and out as b cards dealt from a deck, whose variance is b / (b - 1) times that of
independent draws). Under `repeats` it is held at `repeats` or less, and is `repeats` where no proportion varies.

V has a relative standard error of about sqrt(2 / (G - 1)), which Student's quantile allows for.

With fewer than two clusters there is nothing to compare, and the design effect is `repeats`. The cost is
trials times pairs: it is used for memorization and for pairs, not for the whole matrix, whose errors take the design
effect for `repeats` or b / (b - 1) everywhere (`Arms.sample_in`).

Paper: Sec. 2 states the variance (Lemma 2.1, Remark in App. A) but gives no intervals.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.estimators._arms import Arms
from memfluence.estimators.counts import bits_at
from memfluence.records import Trials

Z95 = 1.959963984540054  # 97.5% quantile of the standard normal distribution
BITS_AT_ONCE = 2**23  # trials times pairs looked at together


@dataclass(frozen=True, eq=False)
class Difference:
    """Estimates with their standard errors and 95% intervals, arrays of one shape; NaN where an arm is empty."""

    value: np.ndarray
    stderr: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def difference(
    in_correct: np.ndarray,
    trials_in: np.ndarray,
    out_correct: np.ndarray,
    trials_out: np.ndarray,
    *,
    sample_in: np.ndarray | None = None,
    sample_out: np.ndarray | None = None,
    quantile: float = Z95,
) -> Difference:
    """in_correct / trials_in - out_correct / trials_out with its errors; the arguments are counts and broadcast.

    The sample sizes are the numbers of independent models in each arm; left out, they are the numbers of trials.
    The interval reaches `quantile` standard errors to each side.
    """
    with np.errstate(invalid="ignore"):  # 0 / 0: an empty arm, NaN from here on
        p_in = np.asarray(in_correct / trials_in)
        p_out = np.asarray(out_correct / trials_out)
    n_in = trials_in if sample_in is None else sample_in
    n_out = trials_out if sample_out is None else sample_out
    centre, error = agresti_caffo(p_in, n_in, p_out, n_out)
    reach = quantile * error
    return Difference(p_in - p_out, error, np.maximum(centre - reach, -1.0), np.minimum(centre + reach, 1.0))


def normal_difference(value: np.ndarray, variance: np.ndarray) -> Difference:
    """Estimates with their errors and normal 95% intervals; rounding must not make a variance negative."""
    stderr = np.sqrt(np.maximum(variance, 0.0))
    return Difference(value, stderr, value - Z95 * stderr, value + Z95 * stderr)


@dataclass(frozen=True, eq=False)
class Welch:
    """A difference of two means of real outcomes: its value, its variance, and Welch and Satterthwaite's degrees.

    The smallest p-value is that of the most extreme of all ways to deal out the models to the two arms: outcomes
    without any spread would have 0.
    """

    value: np.ndarray
    variance: np.ndarray
    degrees: np.ndarray
    least: np.ndarray

    @classmethod
    def of(cls, value: Any, variances: tuple[Any, Any], samples: tuple[Any, Any]) -> "Welch":
        """From the variances of outcomes within each arm, and the numbers of independent models in it."""
        from scipy.special import gammaln

        first, second = (variance / n for variance, n in zip(variances, samples))
        n, m = samples
        with np.errstate(invalid="ignore", divide="ignore"):
            degrees = (first + second) ** 2 / (first * first / (n - 1) + second * second / (m - 1))
            degrees = np.where(np.isnan(degrees), n + m - 2.0, degrees)  # 0 / 0: no spread at all
            least = np.exp(gammaln(n + 1.0) + gammaln(m + 1.0) - gammaln(n + m + 1.0))
        return cls(value, np.maximum(first + second, 0.0), degrees, least)

    def interval(self) -> Difference:
        """Estimates with their errors and 95% intervals by Student's t distribution."""
        from scipy.special import stdtrit

        stderr = np.sqrt(self.variance)
        reach = stdtrit(self.degrees, 0.975) * stderr
        return Difference(self.value, stderr, self.value - reach, self.value + reach)

    def p_values(self, null: float) -> np.ndarray:
        """One-sided p-values of a difference of at most `null`; 1 where the trials cannot say."""
        from scipy.special import stdtr

        with np.errstate(invalid="ignore", divide="ignore"):
            t = (self.value - null) / np.sqrt(self.variance)  # 0 / 0: nothing speaks for a difference
            found = np.maximum(stdtr(self.degrees, -t), self.least)
        return np.asarray(np.where(np.isnan(t), 1.0, found))


def agresti_caffo(
    p_in: np.ndarray, n_in: np.ndarray, p_out: np.ndarray, n_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(centre, standard error) of p_in - p_out, with one success and one failure added to each arm."""
    r = (p_in * n_in + 1) / (n_in + 2)
    s = (p_out * n_out + 1) / (n_out + 2)
    return np.asarray(r - s), np.asarray(np.sqrt(r * (1 - r) / (n_in + 2) + s * (1 - s) / (n_out + 2)))


def wilson_interval(p: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95% score limits of a proportion p observed in n independent models."""
    with np.errstate(invalid="ignore", divide="ignore"):  # n = 0 comes with p = NaN
        z2_n = Z95 * Z95 / n
        centre = (p + z2_n / 2) / (1 + z2_n)
        half = Z95 * np.sqrt(p * (1 - p) / n + z2_n / (4 * n)) / (1 + z2_n)
        # At p = 0 or 1 one limit is p itself; rounding must not carry it beyond.
        return np.maximum(0.0, np.minimum(p, centre - half)), np.minimum(1.0, np.maximum(p, centre + half))


def clustered_difference(arms: Arms, outcome: np.ndarray, train: np.ndarray, test: np.ndarray) -> Difference:
    """Estimates at pairs (train[p], test[p]) with errors that know the clusters; `outcome` has one row per trial.

    Both arms must use the same trials, as they do under every design that has clusters.
    """
    trials = arms.in_trials
    starts = _cluster_starts(trials)
    parts = []
    at_once = max(1, BITS_AT_ONCE // max(1, len(trials)))
    for start in range(0, max(1, len(train)), at_once):
        some = slice(start, start + at_once)
        kept, right = bits_at(trials.mask, train[some]), bits_at(outcome, test[some])  # (trials, some) uint8
        sums = [
            np.add.reduceat(part, starts, axis=0, dtype=np.int64)  # (clusters, some)
            for part in (kept & right, kept, ~kept & right, 1 - kept)
        ]
        parts.append(_from_clusters(*sums, repeats=trials.repeats))
    return Difference(*(np.concatenate([getattr(part, name) for part in parts]) for name in Difference.__annotations__))


def _from_clusters(
    in_correct: np.ndarray, trials_in: np.ndarray, out_correct: np.ndarray, trials_out: np.ndarray, *, repeats: int
) -> Difference:
    """The four counts of each cluster, (clusters, pairs) -> estimates (pairs,)."""
    clusters = len(in_correct)
    four = [part.sum(axis=0) for part in (in_correct, trials_in, out_correct, trials_out)]  # (pairs,) each
    x, a, y, b = four
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty arm, or one that a single cluster fills
        without = (x - in_correct) / (a - trials_in) - (y - out_correct) / (b - trials_out)  # (clusters, pairs)
        variance = (clusters - 1) * without.var(axis=0)  # (pairs,)
        p, q = x / a, y / b
        effect = variance / (p * (1 - p) / a + q * (1 - q) / b)  # (pairs,)
        effect = np.where(np.isfinite(effect), np.maximum(effect, 1.0), repeats)
        if repeats > 1:
            effect = np.minimum(effect, repeats)  # several models on a mask tell no less than one
        return difference(*four, sample_in=a / effect, sample_out=b / effect, quantile=student_quantile(clusters - 1))


def student_quantile(degrees: int) -> float:
    """97.5% quantile of Student's t distribution."""
    if degrees < 1:
        return Z95
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.975))


def _cluster_starts(trials: Trials) -> np.ndarray:
    """Rows at which the clusters begin; trials are in the order of their numbers."""
    return np.unique(trials.numbers // trials.cluster, return_index=True)[1]
