"""A judge for attribution methods: does a score of (train, test) pairs say what retraining says?

A method gives scores tau (n_train, n_test), larger where a training example helps a test example more. Trials that the
method did not use say what happened when random subsets were kept. f_j(S) is the outcome of test example j under
models trained on S, averaged over models of one mask. Three questions, each a mean over test examples:

- `lds`, the linear datamodeling score (Park et al. 2023, TRAK, arXiv 2303.14186): Spearman's correlation, over masks,
  of f_j(S) with the sum of tau_ij over i in S. Does the score predict outcomes of subsets?
- `counterfactual` for k = 1, 2, 3: the mean of f_j over masks that kept all of the k examples that the score ranks
  highest for j, minus that over masks that left all of them out. How much do the named examples matter?
- `ranking`: Spearman's correlation, over training examples, of tau_ij with the influence that these trials estimate.
  Does the score order the examples as retraining does?

Ceilings. No score can do better than the outcomes repeat. With several models per mask (`repeats`) let r be the mean
correlation of two models over masks: the mean of R models has the reliability R r / (1 + (R - 1) r) (Spearman-Brown),
and even the true expected outcome correlates with it by its square root only. Taking r as the mean over test examples
makes it a bound from above, since that function is concave. The ceiling of `ranking` comes the same way from influence
estimated on two halves of the masks. Both are exact for Pearson's correlation, good approximations for ranks.

Intervals. 95%, by resampling masks (whole blocks of balanced ones) and test examples at once, independently, with
replacement (the pigeonhole bootstrap of Owen 2007, which errs on the wide side: by a factor of 1.2 to 1.5 where test
examples have nothing in common but their masks); ranks are those of all masks. Of `ranking` test examples alone are
resampled: it holds for these trials. Two scores are judged on the same resamples, so that their difference has an
interval of its own, which is shorter than the two suggest.

Failure cases. A test example whose outcome never varies says nothing and is left out of all means (their number is
given). A score that makes no difference between masks is no prediction: its correlation counts as 0, for otherwise a
method could leave out what it finds hard. Of few masks hardly any left out all k examples: those test examples are
left out of that counterfactual. If the method used these trials, all of this is too good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._values import kept_examples
from memfluence.records import Trials
from memfluence.seeding import generator

__all__ = ["Judged", "Judgement", "Mean", "judge_scores"]

TESTS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean over test examples with its 95% interval; NaN where none can say. `draws` are its bootstrap copies."""

    value: float
    lower: float
    upper: float
    test_examples: int
    draws: np.ndarray = field(repr=False)  # (draws,)

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "lower": self.lower, "upper": self.upper, "test_examples": self.test_examples}

    def minus(self, other: "Mean") -> "Mean":
        """The difference of two means over the same resamples."""
        return _mean(self.value - other.value, self.draws - other.draws, min(self.test_examples, other.test_examples))


@dataclass(frozen=True, eq=False)
class Judged:
    """What the trials say about one score."""

    lds: Mean
    counterfactual: Mapping[int, Mean]  # by the number of examples named
    ranking: Mean
    lds_of_test: np.ndarray  # (tests,) NaN where the outcome never varies


@dataclass(frozen=True, eq=False)
class Judgement:
    """Scores by name, and what none of them could exceed."""

    scores: Mapping[str, Judged]
    lds_ceiling: Mean | None  # None without several models per mask
    ranking_ceiling: Mean
    trials: int
    masks: int

    def to_json(self) -> dict[str, Any]:
        """All but single test examples; `lds_minus_first` compares with the first score, on the same resamples."""
        first = next(iter(self.scores.values()))
        return {
            "trials": self.trials,
            "masks": self.masks,
            "ceiling": {
                "lds": None if self.lds_ceiling is None else self.lds_ceiling.to_json(),
                "ranking": self.ranking_ceiling.to_json(),
            },
            "scores": [
                {
                    "name": name,
                    "lds": one.lds.to_json(),
                    "ranking": one.ranking.to_json(),
                    "counterfactual": [{"named": k, **mean.to_json()} for k, mean in one.counterfactual.items()],
                    "lds_minus_first": None if one is first else one.lds.minus(first.lds).to_json(),
                }
                for name, one in self.scores.items()
            ],
        }


def judge_scores(
    trials: Trials,
    outcome: np.ndarray,  # (trials, tests)
    scores: Mapping[str, np.ndarray],  # (n_train, tests) each
    *,
    named: Sequence[int] = (1, 2, 3),
    draws: int = 1000,
    seed: int = 0,
) -> Judgement:
    """Judge scores by trials of one kind that they did not use."""
    first, mask_of_trial = np.unique(trials.numbers // trials.repeats, return_index=True, return_inverse=True)[1:]
    if len(first) < 4:
        raise InputError(f"A judgement needs at least 4 masks, and there are {len(first)}; run more trials.")
    mask = kept_examples(trials.select(first))  # (masks, n_train)
    tests = outcome.shape[1]
    _check(outcome, (len(trials), tests), "outcomes")
    for name, score in scores.items():
        _check(score, (trials.n_train, tests), f"scores {name}")
    cluster = np.unique(trials.numbers[first] // trials.cluster, return_inverse=True)[1]  # (masks,)
    rng = generator(seed, "resample", 0)
    clusters = cluster.max() + 1
    of_mask = rng.multinomial(clusters, np.full(clusters, 1 / clusters), draws)[:, cluster].astype(float)
    of_test = rng.multinomial(tests, np.full(tests, 1 / tests), draws).astype(float)  # (draws, tests)
    means: dict[tuple[str, str], _Tally] = {}
    per_test = {name: np.full(tests, np.nan) for name in scores}

    def tally(name: str, what: str, values: np.ndarray, copies: np.ndarray, columns: slice) -> None:
        one = means.setdefault((name, what), _Tally(np.zeros(draws), np.zeros(draws)))
        one.add(values, copies, of_test[:, columns])

    for start in range(0, tests, TESTS_AT_ONCE):
        columns = slice(start, min(tests, start + TESTS_AT_ONCE))
        models = outcome[:, columns].astype(float)  # (trials, some tests)
        mean = _mean_by(mask_of_trial, models)  # (masks, some tests)
        varies = np.ptp(mean, axis=0) > 0  # (some tests,)
        ranks = _ranks(mean)
        if trials.repeats > 1:
            values, copies = _agreement(models, mask_of_trial, trials.repeats, of_mask)
            tally("", "lds", np.where(varies, values, np.nan), copies, columns)
        influence = _influence(mask, mean)
        halves = [_influence(mask[half::2], mean[half::2]) for half in (0, 1)]
        known = varies & np.isfinite(halves[0]).all(axis=0) & np.isfinite(halves[1]).all(axis=0)
        values = np.where(known, _correlation(_ranks(halves[0]), _ranks(halves[1])), np.nan)
        tally("", "ranking", values, values[None], columns)
        for name, score in scores.items():
            tau = score[:, columns].astype(float)  # (n_train, some tests)
            predicted = _ranks(mask @ tau)
            values = np.where(varies, _correlation(predicted, ranks), np.nan)
            per_test[name][columns] = values
            tally(name, "lds", values, _correlation(predicted, ranks, of_mask), columns)
            for k in named:
                values, copies = _counterfactual(mask, mean, tau, k, of_mask)
                tally(name, f"named {k}", np.where(varies, values, np.nan), copies, columns)
            values = np.where(varies, _correlation(_ranks(tau), _ranks(influence)), np.nan)
            tally(name, "ranking", values, values[None], columns)
    judged = {
        name: Judged(
            means[name, "lds"].mean(),
            {k: means[name, f"named {k}"].mean() for k in named},
            means[name, "ranking"].mean(),
            per_test[name],
        )
        for name in scores
    }
    ceiling = means["", "lds"].mean(trials.repeats) if trials.repeats > 1 else None
    return Judgement(judged, ceiling, means["", "ranking"].mean(2), len(trials), len(first))


@dataclass(eq=False)
class _Tally:
    """Sums over test examples, and over each resample of them."""

    copies: np.ndarray  # (draws,)
    weight: np.ndarray  # (draws,)
    total: float = 0.0
    count: int = 0

    def add(self, values: np.ndarray, copies: np.ndarray, of_test: np.ndarray) -> None:
        """`values` (tests,), their bootstrap `copies` (draws, tests) and how often each test example was drawn."""
        known = np.isfinite(values)
        self.total += float(values[known].sum())
        self.count += int(known.sum())
        usable = known & np.isfinite(copies)  # a resample may lack one side of a comparison
        self.copies += (np.where(usable, copies, 0.0) * of_test).sum(axis=1)
        self.weight += (usable * of_test).sum(axis=1)

    def mean(self, models: int = 0) -> Mean:
        """The mean; with `models`, the square root of the reliability of the mean of so many that agree by it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            value, copies = self.total / self.count if self.count else np.nan, self.copies / self.weight
            if models:
                value, copies = (np.sqrt(np.maximum(0.0, models * r / (1 + (models - 1) * r))) for r in (value, copies))
        return _mean(float(value), copies, self.count)


def _check(values: np.ndarray, shape: tuple[int, int], name: str) -> None:
    if values.shape != shape or values.dtype.kind not in "fiub":
        raise InputError(
            f"The {name} must be numbers of the shape {shape}. Got {values.dtype} of {values.shape} instead."
        )
    if not np.isfinite(values).all():
        raise InputError(f"Some of the {name} are not finite; a judgement needs a number for every pair.")


def _mean(value: float, draws: np.ndarray, count: int) -> Mean:
    known = draws[np.isfinite(draws)]
    lower, upper = np.quantile(known, (0.025, 0.975)) if len(known) else (np.nan, np.nan)
    return Mean(value, float(lower), float(upper), count, draws)


def _mean_by(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Means of rows (trials, tests) that share a group, (groups, tests)."""
    total = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(total, group, values)
    return total / np.bincount(group)[:, None]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks down each column, ties shared."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=0))


def _correlation(first: np.ndarray, second: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Pearson's of columns of ranks (rows, tests): (tests,), or (draws, tests) under weights (draws, rows).

    It is 0 where one of the two does not vary.
    """
    share = np.full((1, len(first)), 1.0) if weights is None else weights
    share = share / share.sum(axis=1, keepdims=True)  # (draws, rows)
    first, second = ((ranks - ranks.mean(axis=0)) / len(ranks) for ranks in (first, second))  # between -1 and 1
    mean_first, mean_second = share @ first, share @ second  # (draws, tests)
    together = share @ (first * second) - mean_first * mean_second
    spreads = share @ first**2 - mean_first**2, share @ second**2 - mean_second**2
    varies = np.minimum(*spreads) > 1e-12  # far above rounding, far below the spread of two different ranks
    found = np.where(varies, together / np.sqrt(np.where(varies, spreads[0] * spreads[1], 1.0)), 0.0)
    return found[0] if weights is None else found


def _agreement(
    models: np.ndarray, mask_of_trial: np.ndarray, repeats: int, of_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean correlation of two models of one mask, over the masks that have all their models; and its copies."""
    whole = np.flatnonzero(np.bincount(mask_of_trial) == repeats)
    rows = np.flatnonzero(np.isin(mask_of_trial, whole)).reshape(-1, repeats)  # (masks, repeats)
    ranks = [_ranks(models[rows[:, k]]) for k in range(repeats)]
    pairs = [(a, b) for a in range(repeats) for b in range(a)]
    values = np.mean([_correlation(ranks[a], ranks[b]) for a, b in pairs], axis=0)
    copies = np.mean([_correlation(ranks[a], ranks[b], of_mask[:, whole]) for a, b in pairs], axis=0)
    return values, copies


def _influence(mask: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Mean outcome with minus that without, (n_train, tests); NaN where there is none."""
    kept = mask.sum(axis=0)[:, None]  # (n_train, 1)
    with_it = mask.T @ mean
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(with_it / kept - (mean.sum(axis=0) - with_it) / (len(mask) - kept))


def _counterfactual(
    mask: np.ndarray, mean: np.ndarray, tau: np.ndarray, k: int, of_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean outcome with all of the k highest examples minus that with none of them; and its copies."""
    top = np.argsort(-tau, axis=0, kind="stable")[:k]  # (k, tests)
    kept = mask[:, top].sum(axis=1)  # (masks, tests)
    sides = [(kept == k).astype(float), (kept == 0).astype(float)]
    weights = np.concatenate([np.ones((1, len(mask))), of_mask])
    with np.errstate(invalid="ignore", divide="ignore"):
        found = [(weights @ (side * mean)) / (weights @ side) for side in sides]
    return (found[0] - found[1])[0], (found[0] - found[1])[1:]
