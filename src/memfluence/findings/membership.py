"""Membership inference: can it be told from a model's answer whether an example was in its training set?

Definition. The likelihood ratio attack (LiRA) of Carlini et al. (2022, "Membership Inference Attacks From First
Principles"). The attacker has the log-odds phi = log p/(1-p) that a target model gives an example's label, and shadow
models that kept the example or left it out. With Gaussians fitted to phi of the shadow models, N(m_in, v_in) and
N(m_out, v_out), the score of the example for that target is

    online   log N(phi; m_in, v_in) - log N(phi; m_out, v_out)
    offline  (phi - m_out) / sqrt(v_out)                           where no shadow model kept the example

Estimator. The trials of a run are shadow and target models in turn: each trial is a target once, and its shadow
models are all others but those of its cluster (models on the same mask, masks dealt in one block), so no trial is
ever on both sides. Kept examples are the members, held-out ones the non-members. Variances are those of the example
where it has at least 32 shadow models on each side (`variance="auto"`); with fewer, one variance for all examples on
each side is steadier.

Vulnerability of an example: `separation`, (m_in - m_out) over the root mean of the variances, from all trials, and
`detected`, in what share of the target models that kept it the online attack calls it a member at a false positive
rate of 1%.

Receiver operating characteristic (`Roc`). Scores of members and of non-members, pooled over all models that were
attacked. At a false positive rate f the attack may call a share f of the non-members members; TPR(f) is the share of
members that it then finds. The threshold is the smallest that keeps to f exactly, so nothing is interpolated; with
fewer than 1/f non-members TPR(f) is what is found with no false positive at all.

Variance. The scores of one model are not independent, so models are resampled, all of a cluster (models that share a
mask, or a block of balanced masks) together: percentiles 2.5 and 97.5 of `resamples` draws. Thresholds of a draw are
taken from a fine grid of the pooled scores (`EDGES` of them, evenly spaced in the logarithm of the rate). The shadow
models are the same in every draw: the interval describes other target models, not other shadow models.

The separation d = (m_in - m_out) / s, with s**2 the mean of v_in and v_out, has the squared standard error (v_in/a +
v_out/b) / s**2, and where the variances are the example's own d**2 (v_in**2/(a - 1) + v_out**2/(b - 1)) / (8 s**4) more
(the delta method for Gaussians).

Failure cases. It needs `record="logit"`. The attack knows the training data's distribution as well as can be (the
shadow models come from the very same examples), so it is an upper estimate of what an outsider can do by this method;
other attacks may do better. Log-odds that are far from Gaussian (a forest's votes) make the ratio wrong, though the
rates stay honest, because they are measured on target models. An example with too few shadow models has no score.
Over a handful of examples the area of an attack that finds nothing lies below 1/2 (0.39 for one example and 30
trials), because a target is missing from just the mean that it would pull its way; from 50 examples on that is gone.
Scores of all targets are held at once, some 30 bytes for each trial and training example.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Memory, arms
from memfluence.estimators.counts import bits_at
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

Variance = Literal["auto", "example", "pooled"]
ENOUGH = 32  # shadow models on each side for a variance of the example's own; Carlini et al. take 64 in all
AT_ONCE = 2**20  # log-odds held in some dozens of float64 arrays
BYTES_OF_SCORES = 30  # of a trial and training example, for both attacks and while they are ranked
DETECTED_AT = 0.01
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


@dataclass(frozen=True, eq=False)
class Attack:
    """The success of an attack, over all and for each training example; each array (n_train,)."""

    online: Roc
    offline: Roc
    variance: Variance  # "example" or "pooled"
    targets: int
    shadows: int  # models that each target is compared with
    separation: np.ndarray
    stderr: np.ndarray  # of the separation
    detected: np.ndarray
    trials_in: np.ndarray  # int64
    trials_out: np.ndarray  # int64

    def columns(self, train_labels: np.ndarray) -> dict[str, np.ndarray]:
        """Plain columns about each training example, with its label as its owner wrote it."""
        names = ("separation", "stderr", "detected", "trials_in", "trials_out")
        own = {name: getattr(self, name) for name in names}
        return {"index": np.arange(len(train_labels)), "label": train_labels, **own}


def membership_attack(
    trials: Trials,
    kinds: Sequence[Kind],
    logits: np.ndarray,  # (trials, n_train) log-odds of the label
    keep: float | None = None,
    *,
    variance: Variance = "auto",
    resamples: int = 400,
    seed: int = 0,
    memory: str | int | Memory | None = None,
) -> Attack:
    """Attack each trial with the others as shadow models."""
    if logits.shape != (len(trials), trials.n_train):
        raise InputError(
            f"The log-odds must have the shape (trials, n_train) = {(len(trials), trials.n_train)}; got {logits.shape}."
        )
    if variance not in ("auto", "example", "pooled"):
        raise InputError(f"The `variance` parameter must be auto, example or pooled. Got {variance!r} instead.")
    cells = len(trials) * trials.n_train
    needed = BYTES_OF_SCORES * cells + 8 * 40 * min(AT_ONCE, cells)
    Memory.of(memory).check(needed, "the attack's scores of all trials and training examples", "fewer trials")
    chosen = arms(trials, kinds, keep)
    rows = np.searchsorted(trials.numbers, np.union1d(chosen.in_trials.numbers, chosen.out_trials.numbers))
    some, logits = trials.select(rows), logits[rows]
    if not np.isfinite(logits).all():
        raise InputError("Some recorded log-odds are not finite; bound them where they are recorded or imported from.")
    cluster = some.numbers // some.cluster  # (models,)
    if len(np.unique(cluster)) < 3:
        raise InputError("An attack needs at least three independent trials: a target and shadow models; run more.")
    if variance == "auto":
        fewest = np.minimum(chosen.trials_in, chosen.trials_out)  # (n_train,)
        variance = "example" if np.median(fewest) > ENOUGH else "pooled"
    pooled = _pooled_variances(some, logits, cluster) if variance == "pooled" else None
    online, offline = (np.empty((len(some), trials.n_train), np.float32) for _ in range(2))
    for columns, values, shadow in _shadows(some, logits, cluster):
        online[:, columns], offline[:, columns] = _scores(values, shadow, pooled)
    member = bits_at(some.mask, np.arange(trials.n_train)) == 1  # (models, n_train)
    rocs = [receiver(scores, member, cluster, resamples=resamples, seed=seed) for scores in (online, offline)]
    caught = member & (online > rocs[0].threshold[DETECTED_AT])
    with np.errstate(invalid="ignore"):  # 0 / 0: never kept
        detected = caught.sum(axis=0) / (member & ~np.isnan(online)).sum(axis=0)
    separation, stderr = _separation(some, logits, chosen, variance)
    _, sizes = np.unique(cluster, return_counts=True)
    return Attack(
        online=rocs[0],
        offline=rocs[1],
        variance=variance,
        targets=len(some),
        shadows=len(some) - int(sizes.max()),
        separation=separation,
        stderr=stderr,
        detected=detected,
        trials_in=chosen.trials_in,
        trials_out=chosen.trials_out,
    )


@dataclass(frozen=True, eq=False)
class _Moments:
    """Number, mean and sum of squares about the mean of the shadow models' log-odds, in and out: (2, ..., examples)."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.count > 1, self.squares / (self.count - 1), np.nan))


def _columns(trials: Trials, logits: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Examples some at a time: which, whether each model kept them, their log-odds about their mean."""
    at_once = max(1, AT_ONCE // max(1, len(trials)))
    for start in range(0, trials.n_train, at_once):
        columns = slice(start, min(trials.n_train, start + at_once))
        values = logits[:, columns].astype(float)  # (models, some)
        values -= values.mean(axis=0)
        yield columns, bits_at(trials.mask, np.arange(columns.start, columns.stop)) == 1, values


def _sums(kept: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Number, sum and sum of squares (3, 2, models, some) of what each model adds to the kept and to the others."""
    parts = [np.stack([side, values * side, values * values * side]) for side in (kept.astype(float), 1.0 - kept)]
    return np.stack(parts, axis=1)


def _moments(sums: np.ndarray) -> _Moments:
    count, total, squares = sums
    with np.errstate(invalid="ignore", divide="ignore"):  # no shadow model on that side
        mean = total / count
        return _Moments(count, mean, np.maximum(squares - total * mean, 0.0))  # rounding must not go below 0


def _shadows(trials: Trials, logits: np.ndarray, cluster: np.ndarray) -> Iterator[tuple[slice, np.ndarray, _Moments]]:
    """For some examples at a time: their log-odds, and moments (2, models, some) of each target's shadow models."""
    _, first, which = np.unique(cluster, return_index=True, return_inverse=True)
    for columns, kept, values in _columns(trials, logits):
        sums = np.add.reduceat(_sums(kept, values), first, axis=2)  # (3, 2, clusters, some)
        others = sums.sum(axis=2, keepdims=True) - sums  # all but the target's own cluster
        yield columns, values, _moments(others[:, :, which])


def _pooled_variances(trials: Trials, logits: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """One variance for all examples, in and out, from each target's shadow models: (2, models, 1)."""
    squares, freedom = np.zeros((2, 2, len(trials)))
    for _, _, shadow in _shadows(trials, logits, cluster):
        squares += np.nansum(shadow.squares, axis=2)
        freedom += np.maximum(shadow.count - 1, 0).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((squares / freedom)[:, :, None])


def _scores(values: np.ndarray, shadow: _Moments, pooled: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(online, offline) scores (models, some); NaN where the shadow models cannot say."""
    variance = shadow.variance if pooled is None else pooled
    variance = np.where(variance > 0, variance, np.nan)
    distance = (values - shadow.mean) ** 2 / variance  # (2, models, some)
    online = 0.5 * (distance[1] - distance[0] + np.log(variance[1]) - np.log(variance[0]))
    return online, (values - shadow.mean[1]) / np.sqrt(variance[1])


def _separation(trials: Trials, logits: np.ndarray, chosen: Arms, variance: Variance) -> tuple[np.ndarray, np.ndarray]:
    """(m_in - m_out) / s of every example from all trials, and its standard error."""
    parts = [_moments(_sums(kept, values).sum(axis=2)) for _, kept, values in _columns(trials, logits)]
    mean, squares, count = (
        np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("mean", "squares", "count")
    )  # (2, n_train)
    with np.errstate(invalid="ignore", divide="ignore"):
        if variance == "pooled":
            v_in, v_out = np.nansum(squares, axis=1) / np.maximum(count - 1, 0).sum(axis=1)
        else:
            v_in, v_out = _Moments(count, mean, squares).variance
        spread = (v_in + v_out) / 2  # its square root is s
        value = (mean[0] - mean[1]) / np.sqrt(spread)
        # Both means are over all trials, also where influence takes each arm's own; as many as independent ones.
        n_in = count[0] * chosen.sample_in / chosen.trials_in
        n_out = count[1] * chosen.sample_out / chosen.trials_out
        error = (v_in / n_in + v_out / n_out) / spread
        if variance == "example":
            error += value**2 * (v_in**2 / (n_in - 1) + v_out**2 / (n_out - 1)) / (8 * spread**2)
        return value, np.sqrt(error)


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
