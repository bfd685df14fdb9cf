"""Errors where trials are not independent: a jackknife over clusters of trials.

Two designs have clusters. Under `repeats` the models of one mask share it: a cluster is a mask. Under `balanced` masks
are dealt so that every example is kept equally often within a block: a cluster is a block. Clusters are independent
of each other, so leaving out one at a time shows how much the estimate varies, whatever goes on within them.

Definition. With d the estimate, d_g the same from all trials but cluster g's, and G clusters,

    V = (G - 1) / G * sum over g of (d_g - mean d_g)^2,

and the design effect is V / (p(1-p)/a + q(1-q)/b): how many times the variance is that of independent trials.

Estimator. The errors of `estimators/intervals.py` with a and b divided by the design effect, and Student's quantile
with G - 1 degrees of freedom for the interval; the jackknife alone would claim certainty where all models agree. The
design effect is held at 1 or more: models that share a mask cannot tell more than independent ones, and balance
cannot either, to first order (each other example is spread over in and out as b cards dealt from a deck, whose variance
is b / (b - 1) times that of independent draws). Under `repeats` it is held at `repeats` or less, and is `repeats` where
no proportion varies.

Variance. V has a relative standard error of about sqrt(2 / (G - 1)), which Student's quantile allows for.

Failure cases. With fewer than two clusters there is nothing to compare, and the design effect is `repeats`. The cost is
trials times pairs: it is used for memorization and for pairs, not for the whole matrix, whose errors take the design
effect for `repeats` or b / (b - 1) everywhere (`Arms.sample_in`).
"""

import numpy as np

from memfluence.estimators._arms import Arms
from memfluence.estimators.counts import bits_at
from memfluence.estimators.intervals import Z95, Difference, difference
from memfluence.records import Trials

__all__ = ["clustered_difference"]

BITS_AT_ONCE = 2**23  # trials times pairs looked at together


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
