"""Prediction: how many pairs more trials would give, how repeatable, how many of them by chance; and `trials_needed`,
the number of trials that a standard error, repeatable pairs or few pairs by chance take.

Definition. Let mu be the true influence of a pair. A run of t trials estimates it with an error that is about normal,
of variance s(mu)^2 / t, so it selects the pair with probability

    pi(t) = P[selected as memorized] * Phi((mu - infl) * sqrt(t) / s(mu)).

Over all pairs tested, E[pairs] = sum pi; two independent runs share sum pi^2 of them, so their Jaccard index is about
sum pi^2 / (2 sum pi - sum pi^2); and if no pair had influence, sum pi with mu = 0 would be selected (`by_chance`).

Estimator. The distribution of mu is not that of the estimates, which noise has spread. It is fitted so that with the
noise added it gives the estimates seen (nonparametric maximum likelihood on a grid, by expectation maximization: Kiefer
and Wolfowitz 1956), separately for test examples of similar accuracy, since that is what the noise depends on: with c
the accuracy and k the kept share, a pair has p = c + (1 - k) mu and q = c - k mu. Memorization has errors small against
its spread, so for it the true value is taken to be normal around the estimate.

Variance. `docs/statistics.md` compares predictions from t trials with what 4t give on simulated worlds: from 400
trials on, every world's number of pairs was within 15% and its Jaccard index within 0.12; from 100 trials, of which
most pairs are chance, within about half and 0.3, the index mostly too low, since a few strong pairs cannot be told from
many weak ones under that noise. The number by chance is within a tenth. So it asks for too many trials rather than too
few. `findings/stability.py` uses the same fit at t itself.

Failure cases. Fewer than a hundred trials: counts are far from normal. Values of t below the trials at hand are
allowed and can be compared with what a part of them gives.

Trials needed (`trials_needed`). The least number of trials, of the same kind as those at hand, with which
- `stderr`: the standard error of memorization (its median and its largest value over training examples) and of the
  influence of the pairs selected now is at most the target;
- `jaccard`: two independent runs select pairs with at least this Jaccard index, at the same thresholds;
- `fdr`: pairs by chance (permuted masks) are at most this share of the pairs selected, at the same thresholds.
A squared standard error falls as 1 / trials, and is at most 1 / (4 keep (1 - keep) trials) once the arms are as large
as the design makes them: an example that few of the trials at hand left out will be left out more often. Targets that
are met already take the trials at hand.

Beside them stands what the paper's Lemma says of independent trials of the design `lemma` with as large subsets: after
how many the root mean squared error of every single estimate is below the target, whatever the learner. It is much
more, because it knows nothing of the data, and it says nothing about sets of pairs. `lemma_applies` says whether the
trials at hand are of that design; of any other the Lemma says nothing. Models that share a mask count once in
`lemma_design_stderr`: as many trials of the design `lemma` as there are masks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Influence, Memory, arms, lemma_bound, lemma_trials, memorization_of
from memfluence.estimators.counts import column_counts
from memfluence.findings._selection import tested_blocks
from memfluence.findings.limit import Explained, explained_of_memorization, explained_of_test
from memfluence.records import Kind, Trials

FARTHEST = 1000  # times the trials at hand that predictions are asked about

GRID = np.arange(-0.4, 1.0001, 0.01)  # true influences
EDGES = np.concatenate([[-1.5], np.arange(-0.6, 1.0001, 0.005), [1.5]])  # of the bins in which estimates are counted
ACCURACY_GROUPS = 24
ITERATIONS = 400


@dataclass(frozen=True)
class Prediction:
    """The pairs that the thresholds are expected to give with `trials` trials."""

    trials: int
    pairs: float
    jaccard: float  # between two independent runs
    by_chance: float  # pairs if no training example mattered

    @property
    def chance_share(self) -> float:
        """Pairs by chance over pairs found: about the false discovery rate, on the safe side."""
        return self.by_chance / self.pairs if self.pairs > 0 else float("nan")


@dataclass(frozen=True, eq=False)
class _Group:
    """Pairs whose test examples have about the same accuracy."""

    accuracy: float
    weight: np.ndarray  # (GRID,) share of the pairs at each true influence
    pairs_of: np.ndarray  # (n_train,) pairs tested of each training example

    def posterior(self, noise: np.ndarray) -> np.ndarray:
        """P[true influence <= GRID | the estimate's bin], (bins, GRID); noise (GRID,) as in the fit."""
        reached = np.cumsum(_bin_probabilities(noise) * self.weight, axis=1)
        return np.asarray(reached / reached[:, -1:])


@dataclass(frozen=True, eq=False)
class PairModel:
    """The true values behind some trials, as far as these tell; `predict` asks it about other numbers of trials."""

    trials: int
    kept_share: float
    variance_scale: float  # of trials for what each arm gets: 1 where both arms share the trials, 2 under the lemma's
    mem: float
    infl: float
    memorization: np.ndarray  # (n_train,)
    memorization_error: np.ndarray  # (n_train,)
    groups: dict[int, _Group]
    group_of_test: np.ndarray  # (n_test,)
    rows: np.ndarray  # training examples that may be memorized, ascending

    def draw(self, values: np.ndarray, columns: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """True influences as they may be, given estimates (train, columns) of tested pairs; of the same shape."""
        drawn = np.empty_like(values)
        for number, group in self.groups.items():
            mine = self.group_of_test[columns] == number
            if not mine.any():
                continue
            reached = group.posterior(self._noise(group.accuracy, GRID, self.trials))  # (bins, GRID)
            line = (reached + np.arange(len(reached))[:, None]).ravel()  # ascending: bin b lies in (b, b + 1]
            bins = np.clip(np.searchsorted(EDGES, values[:, mine], side="right") - 1, 0, len(EDGES) - 2)
            place = np.searchsorted(line, bins + rng.random(bins.shape)) - bins * len(GRID)
            drawn[:, mine] = GRID[np.clip(place, 0, len(GRID) - 1)]
        return drawn

    @property
    def variance_at_most(self) -> float:
        """Of an estimate, times trials: accuracies of a half on both sides."""
        return self.variance_scale / (4 * self.kept_share * (1 - self.kept_share))

    def predict(self, trials: int) -> Prediction:
        once, twice = self._memorized(trials)  # (n_train,)
        pairs = shared = chance = 0.0
        for group in self.groups.values():
            selected = _upper_tail(self.infl, GRID, self._noise(group.accuracy, GRID, trials))  # (GRID,)
            one, both = group.pairs_of @ once, group.pairs_of @ twice
            pairs += one * float(group.weight @ selected)
            shared += both * float(group.weight @ selected**2)
            zero = np.zeros(1)
            chance += one * float(_upper_tail(self.infl, zero, self._noise(group.accuracy, zero, trials))[0])
        union = 2 * pairs - shared
        return Prediction(trials, pairs, shared / union if union > 0 else float("nan"), chance)

    def found_share(self, level: float) -> float:
        """The expected share of memorized pairs with an influence of at least `infl` that a selection finds now.

        It selects pairs whose p-value (one-sided, against no influence) is at most `level`.
        """
        from scipy.special import ndtri

        if not level > 0:
            return 0.0
        found = there = 0.0
        ever, both = self._memorized_in_truth()
        strong = self.infl - 1e-9 <= GRID
        for group in self.groups.values():
            noise = self._noise(group.accuracy, GRID, self.trials)
            least = -ndtri(level) * float(self._noise(group.accuracy, np.zeros(1), self.trials)[0])
            selected = _upper_tail(least, GRID, noise)
            found += float(group.pairs_of @ both) * float(group.weight[strong] @ selected[strong])
            there += float(group.pairs_of @ ever) * float(group.weight[strong].sum())
        return found / there if there > 0 else float("nan")

    def trials_for(self, *, jaccard: float | None = None, chance_share: float | None = None) -> int | None:
        """The least number, from the trials at hand on, expected to give a Jaccard index or a share by chance.

        Neither grows steadily from the first trial: with two, noise selects every other pair, and runs share a third of
        them. None if it is out of sight.
        """

        def enough(trials: int) -> bool:
            expected = self.predict(trials)
            if jaccard is not None:
                return expected.jaccard >= jaccard
            return expected.chance_share <= (0.0 if chance_share is None else chance_share)

        low = high = self.trials
        while not enough(high):
            low, high = high, 2 * high
            if high > FARTHEST * self.trials:
                return None
        while high - low > max(1, low // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def _truths(self) -> tuple[np.ndarray, np.ndarray]:
        """Memorization as it may be, (n_train, nodes), and how likely that is (nodes,)."""
        from numpy.polynomial.hermite_e import hermegauss

        nodes, weights = hermegauss(15)
        return self.memorization[:, None] + self.memorization_error[:, None] * nodes, weights / weights.sum()

    def _memorized_in_truth(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities that each example is memorized, and that it is and this run finds it so; (n_train,) each."""
        truth, weights = self._truths()
        is_memorized = truth >= self.mem
        found = _upper_tail(self.mem, truth, self.memorization_error[:, None])
        return is_memorized @ weights, (is_memorized * found) @ weights

    def _memorized(self, trials: int) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities that one run, and that both of two, find each example memorized; (n_train,) each."""
        truth, weights = self._truths()
        error = self.memorization_error[:, None] * np.sqrt(self.trials / trials)
        selected = _upper_tail(self.mem, truth, error)
        return selected @ weights, selected**2 @ weights

    def _noise(self, accuracy: float, truth: np.ndarray, trials: int) -> np.ndarray:
        return _noise(accuracy, truth, self.kept_share, trials / self.variance_scale)


def fit_pairs(
    arms: Arms,
    blocks: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    mem: float,
    infl: float,
    memory: str | int | Memory | None = None,
) -> PairModel:
    """Fit the true influences of the pairs in `blocks`, which are all pairs that may be tested, memorized or not."""
    estimates, memorized = Influence(arms, memory=memory), memorization_of(arms)
    largest = max((len(rows) * len(columns) for rows, columns in blocks), default=0)
    estimates.memory.check(8 * (6 * largest + 2 * ACCURACY_GROUPS * arms.n_train), "fitting pairs", "fewer examples")
    trials = sum(len(part) for part in arms.parts)
    scale = 1.0 if arms.shared else 2.0
    effective = trials * float(np.sum(arms.sample_in) / max(1, np.sum(arms.trials_in)))
    kept_share = float(arms.trials_in.sum() / max(1, (arms.trials_in + arms.trials_out).sum()))
    if not 0 < kept_share < 1:
        raise InputError(
            "The trials keep all training examples or none, so they predict nothing; run other ones first."
        )
    accuracy = _accuracy(arms)  # (n_test,)
    group_of = np.digitize(_angle(accuracy), np.linspace(0, np.pi / 2, ACCURACY_GROUPS + 1)[1:-1])  # (n_test,)
    error = memorized.stderr
    likely = np.where(np.isnan(memorized.value), 0.0, _upper_tail(mem, memorized.value, error))  # (n_train,)
    may_be = np.flatnonzero(likely > 1e-3)
    counts = np.zeros((ACCURACY_GROUPS, len(EDGES) - 1))
    pairs_of = np.zeros((ACCURACY_GROUPS, arms.n_train))
    for rows, columns in blocks:
        rows = np.intersect1d(rows, may_be)
        values = estimates.block(rows, columns)  # (rows, columns)
        for group in np.unique(group_of[columns]):
            mine = group_of[columns] == group
            pairs_of[group, rows] += mine.sum()
            weights = np.repeat(likely[rows], mine.sum())
            counts[group] += np.histogram(values[:, mine].ravel(), EDGES, weights=weights)[0]
    groups = {}
    for group in np.flatnonzero(counts.sum(axis=1) > 0).tolist():
        centre = float(accuracy[group_of == group].mean())
        noise = _noise(centre, GRID, kept_share, effective / scale)
        groups[group] = _Group(centre, _deconvolved(counts[group], noise), pairs_of[group])
    return PairModel(
        trials=trials,
        kept_share=kept_share,
        variance_scale=scale * trials / effective,
        mem=mem,
        infl=infl,
        memorization=np.nan_to_num(memorized.value, nan=-1.0),
        memorization_error=np.nan_to_num(error, nan=1e-9),
        groups=groups,
        group_of_test=group_of,
        rows=may_be,
    )


def _deconvolved(counts: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Weights on GRID under which estimates with this noise (GRID,) are most likely to fall as counted (bins,)."""
    likelihood = _bin_probabilities(noise)  # (bins, GRID)
    weight = np.full(len(GRID), 1 / len(GRID))
    for _ in range(ITERATIONS):
        weight = weight * (likelihood.T @ (counts / (likelihood @ weight))) / counts.sum()
    return weight


def _bin_probabilities(noise: np.ndarray) -> np.ndarray:
    """P[the estimate falls into a bin | true influence], (bins, GRID)."""
    above = _upper_tail(EDGES[:, None], GRID[None, :], noise[None, :])  # (edges, GRID)
    return np.maximum(-np.diff(above, axis=0), 1e-300)


def _noise(accuracy: float, truth: np.ndarray, kept_share: float, trials: float) -> np.ndarray:
    """Standard deviation of the estimates of pairs with these true influences."""
    p = np.clip(accuracy + (1 - kept_share) * truth, 0, 1)
    q = np.clip(accuracy - kept_share * truth, 0, 1)
    variance = (p * (1 - p) / kept_share + q * (1 - q) / (1 - kept_share)) / trials
    return np.asarray(np.sqrt(np.maximum(variance, 1e-12)))


def _accuracy(arms: Arms) -> np.ndarray:
    right = sum(column_counts(part.test_correct, part.n_test) for part in arms.parts)
    total = sum(len(part) for part in arms.parts)
    return np.asarray((right + 1) / (total + 2))  # never 0 or 1, where there would be no noise


def _angle(share: np.ndarray) -> np.ndarray:
    """Shares on a scale on which their noise is about the same everywhere."""
    return np.asarray(np.arcsin(np.sqrt(share)))


def _upper_tail(threshold: np.ndarray | float, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr((mean - threshold) / deviation))


def trials_needed(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    stderr: float | None = None,
    jaccard: float | None = None,
    fdr: float | None = None,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    memory: str | int | Memory | None = None,
) -> dict[str, Any]:
    """The trials that each target takes, and what multiples of those at hand should give, as a JSON-able dict."""
    for name, target in (("stderr", stderr), ("jaccard", jaccard), ("fdr", fdr)):
        if target is not None and not 0 < target < 1:
            raise InputError(f"The target `{name}` must be above 0 and below 1. Got {target!r} instead.")
    chosen, cap = arms(trials, kinds, keep), Memory.of(memory)
    count = len(chosen.in_trials) + (0 if chosen.shared else len(chosen.out_trials))
    blocks = list(tested_blocks(np.arange(chosen.n_train), train_labels, test_labels, same_class))
    model = fit_pairs(chosen, blocks, mem=mem, infl=infl, memory=cap)
    size = _subset_size(chosen, kinds, model.kept_share)
    masks = _independent_masks(chosen)
    targets: dict[str, Any] = {}
    if stderr is not None:
        targets["stderr"] = {
            "target": stderr,
            **_for_stderr(Influence(chosen, memory=cap), blocks, stderr, count, mem, infl, model.variance_at_most),
            "lemma_design_trials": lemma_trials(size / chosen.n_train, stderr),
        }
    if jaccard is not None:
        needed = model.trials_for(jaccard=jaccard)
        targets["jaccard"] = {"target": jaccard, "expected_now": model.predict(count).jaccard, "trials": needed}
    if fdr is not None:
        needed = model.trials_for(chance_share=fdr)
        targets["fdr"] = {"target": fdr, "expected_now": model.predict(count).chance_share, "trials": needed}
    for found in targets.values():
        found["more"] = None if found["trials"] is None else max(0, found["trials"] - count)
    predictions = []
    for times in (1, 2, 4, 8, 16):
        expected = model.predict(times * count)
        predictions.append(
            {
                "trials": expected.trials,
                "pairs": expected.pairs,
                "jaccard": expected.jaccard,
                "by_chance": expected.by_chance,
                "lemma_design_stderr": math.sqrt(lemma_bound(chosen.n_train, size, times * masks)) if masks else None,
            }
        )
    return {
        "trials": count,
        "masks": masks,
        "explained": {
            "memorization": _limit(explained_of_memorization(chosen)),
            "influence": _limit(explained_of_test(chosen)),
        },
        "lemma_applies": _lemma_applies(chosen, kinds),
        "mem": mem,
        "infl": infl,
        "targets": targets,
        "predictions": predictions,
    }


def _limit(found: Explained | None) -> dict[str, Any] | None:
    """None where the trials do not tell."""
    if found is None or not math.isfinite(found.share):
        return None
    return {"share": found.share, "stderr": found.stderr, "least_trials": found.least_trials}


def _for_stderr(
    estimates: Influence, blocks: Sequence[Any], target: float, count: int, mem: float, infl: float, at_most: float
) -> dict[str, Any]:
    """`at_most`: the largest variance that an estimate can have, times trials, with the expected number in each arm."""
    memorized = memorization_of(estimates.arms)
    errors = memorized.stderr[np.isfinite(memorized.stderr)]
    tested = [(np.intersect1d(some, np.flatnonzero(memorized.value >= mem)), columns) for some, columns in blocks]
    of_pairs = estimates.at(*estimates.at_least(infl, tested)).stderr

    def needed(error: float) -> int:
        return math.ceil(min(count * error**2, at_most) / target**2)

    now = {
        "memorization_median": float(np.median(errors)) if len(errors) else float("nan"),
        "memorization_largest": float(errors.max()) if len(errors) else float("nan"),
        "pairs_largest": float(of_pairs.max()) if len(of_pairs) else float("nan"),
    }
    largest = max((value for value in now.values() if not math.isnan(value)), default=float("nan"))
    return {
        "expected_now": largest,
        "now": now,
        "trials_for": {name: None if math.isnan(value) else needed(value) for name, value in now.items()},
        "trials": None if math.isnan(largest) else needed(largest),
    }


def _independent_masks(chosen: Arms) -> int:
    """Models that share a mask count once; where the arms have their own trials, twice the smaller arm."""
    in_arm, out_arm = (len(np.unique(part.numbers // part.repeats)) for part in (chosen.in_trials, chosen.out_trials))
    return in_arm if chosen.shared else 2 * min(in_arm, out_arm)


def _subset_size(chosen: Arms, kinds: Sequence[Kind], kept_share: float) -> int:
    """The Lemma's m, or about as many as the trials keep."""
    sizes = [kind.subset_size for kind in kinds if kind.keep == chosen.keep and kind.arm in ("both", "in")]
    size = sizes[0] if sizes and sizes[0] is not None else round(kept_share * chosen.n_train)
    return min(max(1, size), chosen.n_train - 1)


def _lemma_applies(chosen: Arms, kinds: Sequence[Kind]) -> bool:
    """True if these are independent trials of m and of m - 1 examples."""
    sizes = {kind.arm: kind.subset_size for kind in kinds if kind.keep == chosen.keep}
    in_size, out_size = sizes.get("in"), sizes.get("out")
    if in_size is None or out_size is None:
        return False
    return in_size - out_size == 1 and chosen.in_trials.cluster == 1
