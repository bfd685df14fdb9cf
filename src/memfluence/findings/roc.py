"""Receiver operating characteristics of an attack on many models, with errors from a bootstrap over the models.

Definition. Scores of members and of non-members, pooled over all models that were attacked. At a false positive rate
f the attack may call a share f of the non-members members; TPR(f) is the share of members that it then finds. The
threshold is the smallest that keeps to f exactly, so nothing is interpolated; with fewer than 1/f non-members TPR(f)
is what is found with no false positive at all.

Variance. The scores of one model are not independent, so models are resampled, all of a cluster (models that share a
mask, or a block of balanced masks) together: percentiles 2.5 and 97.5 of `resamples` draws. Thresholds of a draw are
taken from a fine grid of the pooled scores (`EDGES` of them, evenly spaced in the logarithm of the rate). The shadow
models are the same in every draw: the interval describes other target models, not other shadow models.
"""

from dataclasses import dataclass

import numpy as np

from memfluence.seeding import generator

RATES = (0.001, 0.01)  # false positive rates at which attacks are compared
EDGES = 2000
CURVE = 121  # points of the curve that is drawn


@dataclass(frozen=True)
class Share:
    """A number between 0 and 1 with its 95% interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Roc:
    """The receiver operating characteristic of an attack: members found at each rate of false alarms."""

    auc: Share
    at: dict[float, Share]  # true positive rate by false positive rate
    threshold: dict[float, float]  # a score above it is called a member at that false positive rate
    rates: np.ndarray  # (points,) false positive rates of the curve
    found: np.ndarray  # (points,) true positive rates
    lower: np.ndarray  # (points,) 95% interval, point by point
    upper: np.ndarray  # (points,)
    members: int
    non_members: int


def receiver(
    scores: np.ndarray,  # (models, examples), NaN where there is none
    member: np.ndarray,  # (models, examples) bool
    cluster: np.ndarray,  # (models,) which models are resampled together, ascending
    *,
    resamples: int = 400,
    seed: int = 0,
) -> Roc:
    """The characteristic of pooled scores; an attack without a single member or non-member has NaN everywhere."""
    known = ~np.isnan(scores)
    inside, outside = np.sort(scores[known & member]), np.sort(scores[known & ~member])
    least = 1 / max(10, len(outside))
    rates = np.geomspace(least, 1.0, CURVE)  # (points,)
    values = [area_under(inside, outside), *(rate_at(inside, outside, rate) for rate in (*RATES, *rates))]
    draws = resampled(scores, member & known, ~member & known, cluster, outside, rates, resamples, seed)
    draws = np.clip(draws[1:] + (np.array(values) - draws[0]), 0, 1)  # less the error of the grid
    low, high = np.percentile(draws, (2.5, 97.5), axis=0)  # (1 + len(RATES) + points,)
    shares = [Share(float(values[k]), float(low[k]), float(high[k])) for k in range(1 + len(RATES))]
    return Roc(
        auc=shares[0],
        at=dict(zip(RATES, shares[1:])),
        threshold={rate: _threshold(outside, rate) for rate in RATES},
        rates=rates,
        found=np.array(values[len(shares) :]),
        lower=low[len(shares) :],
        upper=high[len(shares) :],
        members=len(inside),
        non_members=len(outside),
    )


def _threshold(outside: np.ndarray, rate: float) -> float:
    """The score that at most a share `rate` of the (ascending) non-members exceeds."""
    allowed = int(rate * len(outside) * (1 + 1e-12))  # 0.01 * 300 is 3 false positives, whatever the rounding
    if not len(outside):
        return float("nan")
    return float(outside[-1 - allowed]) if allowed < len(outside) else -np.inf


def rate_at(inside: np.ndarray, outside: np.ndarray, rate: float) -> float:
    """Share of the members (ascending scores) above the threshold that keeps the false positive rate."""
    if not len(inside) or not len(outside):
        return float("nan")
    return 1 - float(np.searchsorted(inside, _threshold(outside, rate), side="right")) / len(inside)


def area_under(inside: np.ndarray, outside: np.ndarray) -> float:
    """Probability that a member scores above a non-member, ties counting half; scores ascending."""
    if not len(inside) or not len(outside):
        return float("nan")
    below = np.searchsorted(outside, inside, "left").sum() + np.searchsorted(outside, inside, "right").sum()
    return float(below / 2 / len(inside) / len(outside))


def resampled(
    scores: np.ndarray,
    inside: np.ndarray,  # (models, examples) bool: members with a score
    outside: np.ndarray,  # (models, examples) bool
    cluster: np.ndarray,
    pooled: np.ndarray,  # ascending scores of all non-members
    rates: np.ndarray,
    resamples: int,
    seed: int,
) -> np.ndarray:
    """Area and true positive rates, (1 + resamples, 1 + len(RATES) + points): of all models, then of clusters of models
    drawn again and again."""
    _, which = np.unique(cluster, return_inverse=True)
    ranks = np.unique(np.geomspace(1, max(1, len(pooled)), EDGES).astype(int))  # of the non-members, from the top
    edges = np.unique(pooled[-ranks]) if len(pooled) else np.zeros(1)  # ascending
    counts = np.zeros((2, which.max(initial=-1) + 1, len(edges) + 1))  # members and others, by cluster and bin
    for model, unit in enumerate(which):
        bins = np.searchsorted(edges, scores[model], side="left")  # above edge k: bin k + 1 and on
        for side, chosen in enumerate((inside, outside)):
            counts[side, unit] += np.bincount(bins[chosen[model]], minlength=len(edges) + 1)
    wanted = np.concatenate([RATES, rates])
    draws = np.full((1 + resamples, 1 + len(wanted)), np.nan)
    n = counts.shape[1]
    drawn = [np.arange(n), *(generator(seed, "resample", k).integers(0, n, n) for k in range(resamples))]
    weights = np.array([np.bincount(units, minlength=n) for units in drawn], dtype=float)  # (1 + resamples, clusters)
    above_in, above_out = (np.cumsum((weights @ part)[:, ::-1], axis=1) for part in counts)  # from the top
    for k in np.flatnonzero((above_in[:, -1] > 0) & (above_out[:, -1] > 0)):
        tpr, fpr = (np.concatenate([[0], above[k] / above[k, -1]]) for above in (above_in, above_out))
        draws[k, 0] = (np.diff(fpr) * (tpr[1:] + tpr[:-1])).sum() / 2
        draws[k, 1:] = tpr[np.searchsorted(fpr, wanted * (1 + 1e-12), side="right") - 1]
    return draws
