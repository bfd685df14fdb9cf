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

Intervals. 95%, for other masks and other test examples of the same kind (`Tally`). The influence of a mask on a
correlation of standardised ranks a and b is a b - r (a^2 + b^2) / 2; the ranks are those of all masks. Of `ranking`
test examples alone are seen as random: it holds for these trials. `lds_minus_first` is the difference from the first
score, whose interval is shorter than the two suggest.

Failure cases. A test example whose outcome never varies says nothing and is left out of all means (their number is
given). A score that makes no difference between masks is no prediction: its correlation counts as 0, for otherwise a
method could leave out what it finds hard. Of few masks hardly any left out all k examples: those test examples are
left out of that counterfactual. A training example that all of these masks kept, or none, has no estimated influence:
`ranking` is over the others, its ceiling over those known in both halves; NaN with fewer than two. If the method used
these trials, all of this is too good.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import nan
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import distinct_masks
from memfluence.estimators._values import kept_examples
from memfluence.estimators.memory import Memory
from memfluence.records import Trials

TESTS_AT_ONCE = 256
_PerTest = tuple[np.ndarray, np.ndarray]  # (tests,), and the influence of each mask on it, (masks, tests)


@dataclass(frozen=True)
class Mean:
    """A mean over test examples with its standard error and 95% interval; NaN where none can say."""

    value: float
    stderr: float
    lower: float
    upper: float
    test_examples: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Judged:
    """The verdict of the trials on one score."""

    lds: Mean
    counterfactual: Mapping[int, Mean]  # by the number of examples named
    ranking: Mean
    lds_of_test: np.ndarray  # (tests,) NaN where the outcome never varies
    lds_minus_first: Mean | None  # None for the first score


@dataclass(frozen=True, eq=False)
class Judgement:
    """Scores by name, and what none of them could exceed."""

    scores: Mapping[str, Judged]
    lds_ceiling: Mean | None  # None without several models per mask
    ranking_ceiling: Mean
    trials: int
    masks: int

    def to_json(self) -> dict[str, Any]:
        """All but single test examples."""
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
                    "lds_minus_first": None if one.lds_minus_first is None else one.lds_minus_first.to_json(),
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
    memory: str | int | Memory | None = None,
) -> Judgement:
    """Judge scores by trials of one kind that they did not use."""
    first, mask_of_trial = distinct_masks(trials)
    if len(first) < 4:
        raise InputError(f"A judgement needs at least 4 masks, and there are {len(first)}; run more trials.")
    tests = outcome.shape[1]
    _ranks(np.zeros((1, 1)))  # loads SciPy before memory is asked about
    at_once = TESTS_AT_ONCE * (6 * len(trials) + 24 * (len(first) + trials.n_train))
    needed = 8 * (2 * len(first) * trials.n_train + at_once)
    Memory.of(memory).check(needed, "judging some test examples at a time", "fewer `trials`")
    mask = kept_examples(trials.select(first))  # (masks, n_train)
    _check(outcome, (len(trials), tests), "outcomes")
    for name, score in scores.items():
        _check(score, (trials.n_train, tests), f"scores {name}")
    known, in_both = _known(mask), np.intersect1d(_known(mask[::2]), _known(mask[1::2]))  # training examples
    cluster = np.unique(trials.numbers[first] // trials.cluster, return_inverse=True)[1]  # (masks,)
    tallies: dict[tuple[str, str], Tally] = defaultdict(lambda: Tally(cluster))
    for start in range(0, tests, TESTS_AT_ONCE):
        columns = slice(start, min(tests, start + TESTS_AT_ONCE))
        models = outcome[:, columns].astype(float)  # (trials, some tests)
        mean = _mean_by(mask_of_trial, models)  # (masks, some tests)
        varies = np.ptp(mean, axis=0) > 0  # (some tests,)
        ranks = _ranks(mean)
        if trials.repeats > 1:
            tallies["", "lds"].add(*_agreement(models, mask_of_trial, trials.repeats), varies)
        influence = _influence(mask[:, known], mean)
        halves = [_influence(mask[half::2][:, in_both], mean[half::2]) for half in (0, 1)]
        tallies["", "ranking"].add(_same_order(*halves), None, varies)
        of_first: _PerTest | None = None
        for name, score in scores.items():
            tau = score[:, columns].astype(float)  # (n_train, some tests)
            lds = _correlation(_ranks(mask @ tau), ranks)
            tallies[name, "lds"].add(*lds, varies)
            if of_first is not None:
                tallies[name, "minus"].add(lds[0] - of_first[0], lds[1] - of_first[1], varies)
            of_first = of_first or lds
            for k in named:
                tallies[name, f"named {k}"].add(*_counterfactual(mask, mean, tau, k), varies)
            tallies[name, "ranking"].add(_same_order(tau[known], influence), None, varies)
    judged = {
        name: Judged(
            tallies[name, "lds"].mean(),
            {k: tallies[name, f"named {k}"].mean() for k in named},
            tallies[name, "ranking"].mean(),
            np.concatenate(tallies[name, "lds"].values),
            tallies[name, "minus"].mean() if (name, "minus") in tallies else None,
        )
        for name in scores
    }
    ceiling = _ceiling(tallies["", "lds"].mean(), trials.repeats) if trials.repeats > 1 else None
    return Judgement(judged, ceiling, _ceiling(tallies["", "ranking"].mean(), 2), len(trials), len(first))


def _ceiling(agreement: Mean, models: int) -> Mean:
    """The square root of the reliability of the mean of so many models (or halves) that agree by this much."""

    def root(r: float) -> float:
        agreed = np.maximum(0.0, r)
        return float(np.sqrt(models * agreed / (1 + (models - 1) * agreed)))

    r, value = agreement.value, root(agreement.value)
    slope = value / (2 * r * (1 + (models - 1) * r)) if r > 0 else float("nan")
    ends = root(agreement.lower), root(agreement.upper)
    return Mean(value, slope * agreement.stderr, *ends, agreement.test_examples)


def _check(values: np.ndarray, shape: tuple[int, int], name: str) -> None:
    if values.shape != shape or values.dtype.kind not in "fiub":
        raise InputError(
            f"The {name} must be numbers of the shape {shape}. Got {values.dtype} of {values.shape} instead."
        )
    if not np.isfinite(values).all():
        raise InputError(f"Some of the {name} are not finite; a judgement needs a number for every pair.")


def _mean_by(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Means of rows (trials, tests) that share a group, (groups, tests)."""
    total = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(total, group, values)
    return total / np.bincount(group)[:, None]


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks down each column, ties shared."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=0))


def _correlation(first: np.ndarray, second: np.ndarray) -> _PerTest:
    """Pearson's of columns of ranks (rows, tests), and each row's influence on it; 0 where one is constant."""
    varies = (np.ptp(first, axis=0) > 0) & (np.ptp(second, axis=0) > 0)  # (tests,)
    a, b = (
        np.where(varies, ranks - ranks.mean(axis=0), 0.0) / np.where(varies, ranks.std(axis=0), 1.0)
        for ranks in (first, second)
    )
    values = (a * b).mean(axis=0)
    return values, a * b - values * (a**2 + b**2) / 2


def _same_order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's of columns (examples, tests); NaN where there are not two examples to put in order."""
    return _correlation(_ranks(first), _ranks(second))[0] if len(first) > 1 else np.full(first.shape[1], np.nan)


def _agreement(models: np.ndarray, mask_of_trial: np.ndarray, repeats: int) -> _PerTest:
    """Mean correlation of two models of one mask, over the masks that have all their models."""
    counts = np.bincount(mask_of_trial)
    whole = np.flatnonzero(counts == repeats)
    rows = np.flatnonzero(np.isin(mask_of_trial, whole)).reshape(-1, repeats)  # (masks, repeats)
    ranks = [_ranks(models[rows[:, k]]) for k in range(repeats)]
    found = [_correlation(ranks[a], ranks[b]) for a in range(repeats) for b in range(a)]
    psi = np.zeros((len(counts), models.shape[1]))
    psi[whole] = np.mean([one[1] for one in found], axis=0) * len(counts) / max(1, len(whole))
    return np.mean([one[0] for one in found], axis=0), psi


def _known(mask: np.ndarray) -> np.ndarray:
    """The training examples whose influence these masks can say: some kept them and some did not."""
    kept = mask.sum(axis=0)  # (n_train,)
    return np.flatnonzero((kept > 0) & (kept < len(mask)))


def _influence(mask: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Mean outcome with minus that without, (examples, tests), of examples that are known."""
    kept = mask.sum(axis=0)[:, None]  # (examples, 1)
    with_it = mask.T @ mean
    return np.asarray(with_it / kept - (mean.sum(axis=0) - with_it) / (len(mask) - kept))


def _counterfactual(mask: np.ndarray, mean: np.ndarray, tau: np.ndarray, k: int) -> _PerTest:
    """Mean outcome with all of the k highest examples minus that with none of them; NaN where there is no such mask."""
    top = np.argsort(-tau, axis=0, kind="stable")[:k]  # (k, tests)
    kept = mask[:, top].sum(axis=1)  # (masks, tests)
    values, psi = np.zeros(mean.shape[1]), np.zeros(mean.shape)
    for sign, side in ((1, kept == k), (-1, kept == 0)):
        count = side.sum(axis=0)  # (tests,)
        with np.errstate(invalid="ignore", divide="ignore"):
            of_side = (side * mean).sum(axis=0) / count
            values += sign * of_side
            psi += sign * side * (mean - of_side) * len(mask) / count
    return values, psi


@dataclass(eq=False)
class Tally:
    """The mean, over test examples, of a number that was estimated from masks, and how sure it is.

    It varies with the masks, with the test examples, and with what is peculiar to each combination of the two. Let
    psi_gj be the influence of mask g (of a block of balanced ones) on the number of test example j (the infinitesimal
    jackknife: the number is, to first order, its expectation plus the mean of psi_gj over g). With G masks and J test
    examples

        V = sum_g mean_j(psi_gj)^2 / (G (G-1))  +  var_j / J  -  sum_gj (psi_gj - mean_j psi_gj)^2 / (G (G-1) J (J-1)).

    Each of the first two terms contains the peculiar part, so it is subtracted once (Cameron, Gelbach and Miller 2011).
    Resampling masks and test examples at once would count it three times (Owen 2007): 1.2 to 1.6 times too wide here.
    The interval takes Student's quantile with min(G, J) - 1 degrees of freedom.

    Failure cases. Of a single test example the interval is about other masks alone. To first order: with few masks, or
    where a number hangs on a handful of them, the first term is too small. Where nothing is in common, V errs upwards
    (by up to a tenth in the standard error), since it is not let below its last term.

    What this needs is gathered some test examples at a time.
    """

    cluster: np.ndarray  # (masks,) which masks are not independent
    values: list[np.ndarray] = field(default_factory=list)  # NaN where a test example does not count
    psi: np.ndarray | None = None  # (clusters,) sums over test examples
    psi_squared: float = 0.0

    def add(self, values: np.ndarray, psi: np.ndarray | None, counts: np.ndarray) -> None:
        """`values` (tests,) and the influence (masks, tests) of each mask on them; those that do not count are NaN."""
        values = np.where(counts, values, np.nan)
        self.values.append(values)
        if psi is not None:
            by_cluster = np.zeros((self.cluster.max() + 1, int(np.isfinite(values).sum())))
            np.add.at(by_cluster, self.cluster, psi[:, np.isfinite(values)])
            by_cluster *= len(by_cluster) / len(psi)  # the mean of all stays what it is
            self.psi = by_cluster.sum(axis=1) + (0.0 if self.psi is None else self.psi)
            self.psi_squared += float((by_cluster**2).sum())

    def mean(self) -> Mean:
        """The mean over the test examples gathered, with its error."""
        from scipy.stats import t as student

        values = np.concatenate(self.values)
        values = values[np.isfinite(values)]
        tests = len(values)
        if not tests:
            return Mean(nan, nan, nan, nan, 0)
        of_tests = float(values.var(ddof=1)) / tests if tests > 1 else nan
        variance, freedom = of_tests, tests - 1
        if self.psi is not None:
            clusters = len(self.psi)
            pairs = clusters * (clusters - 1) or nan  # of a single cluster nothing can be said
            of_masks = float(((self.psi / tests) ** 2).sum()) / pairs
            variance, freedom = of_masks, clusters - 1
            if tests > 1:
                peculiar = (self.psi_squared - float((self.psi**2).sum()) / tests) / (pairs * tests * (tests - 1))
                # It is there whatever masks and test examples have in common, so V is not below it.
                variance, freedom = max(peculiar, of_masks + of_tests - peculiar), min(freedom, tests - 1)
        value, error = float(values.mean()), float(np.sqrt(variance))
        reach = float(student.ppf(0.975, freedom)) * error if freedom > 0 else nan
        return Mean(value, error, value - reach, value + reach, tests)
