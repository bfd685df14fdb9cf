"""Published pairs in a run of one's own: the influence that it gives them, and the rank of the training example.

The rank of a pair's training example is its place among the training examples of its class by influence on the pair's
test example: 1 is the most influential one, and examples of equal influence share the better place. In a run that knows
nothing all places are equally likely, so the middle of the class is what to expect by chance.

The mean influence over the pairs has a standard error from a bootstrap over trials. Pairs share their trials, so the
errors of single pairs do not add up. A draw takes as many clusters of trials as there are, with replacement (trials
that share a mask, or were dealt together, are a cluster), and its mean is over the pairs that it can estimate: those
whose training example some of its trials kept and others did not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.estimators import Arms
from memfluence.estimators.counts import bits_at
from memfluence.exchange.published import Published
from memfluence.records import Trials
from memfluence.runs import Run, Table
from memfluence.seeding import generator

DRAWS = 200  # of trials: the standard error's own error is then 5%
BITS_AT_ONCE = 2**20  # trials times pairs looked at together


@dataclass(frozen=True, eq=False)
class FoundAgain:
    """One entry per published pair, in the file's order."""

    train_index: np.ndarray  # (pairs,)
    test_index: np.ndarray
    label: np.ndarray
    influence_published: np.ndarray
    influence: np.ndarray  # that the run gives the pair; NaN where its trials cannot
    stderr: np.ndarray
    memorization: np.ndarray  # that the run gives the training example
    rank: np.ndarray  # int64, of the training example among its class; 1 is the most influential
    class_size: np.ndarray  # int64, training examples of the class
    found: np.ndarray  # bool, whether the run selects the pair as well
    mean_stderr: float  # of the mean of `influence`; NaN where trials are too few

    def table(self) -> Table:
        return Table({name: column for name, column in vars(self).items() if name != "mean_stderr"})

    def summary(self) -> dict[str, Any]:
        """Means and counts over all pairs."""
        here, there = self.influence, self.influence_published.astype(float)
        known = np.isfinite(here)
        varies = known.sum() > 1 and here[known].std() > 0 and there[known].std() > 0
        any_pairs = len(there) > 0
        return {
            "pairs": len(there),
            "mean_influence_published": float(there.mean()) if any_pairs else None,
            "mean_influence_here": float(here[known].mean()) if known.any() else None,
            "mean_influence_here_stderr": self.mean_stderr if np.isfinite(self.mean_stderr) else None,
            "correlation": float(np.corrcoef(there[known], here[known])[0, 1]) if varies else None,
            "most_influential_of_class": int((self.rank == 1).sum()),
            "median_rank_in_class": float(np.median(self.rank)) if any_pairs else None,
            "found": int(self.found.sum()),
            "among_first_5_of_class": int((self.rank <= 5).sum()),
            "median_rank_by_chance": float(np.median((self.class_size + 1) / 2)) if any_pairs else None,
        }


def found_again(
    run: Run,
    published: Published,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    keep: float | None = None,
    memory: str | int | None = None,
) -> FoundAgain:
    """The pairs of a file as the run has them; found are those that it selects itself at `mem` and `infl`."""
    train, test = np.asarray(published.train_index), np.asarray(published.test_index)
    estimates, codes = run.influence_estimates(keep, memory=memory), run.label_codes
    here, memorization = estimates.at(train, test), run.estimate_memorization(keep).value[train]
    rank, size = (np.zeros(len(train), dtype=np.int64) for _ in range(2))
    for label, j in np.unique(np.stack([codes[0][train], test]), axis=1).T:
        members = np.flatnonzero(codes[0] == label)
        column = estimates.block(members, [j])[:, 0]
        these = np.flatnonzero((codes[0][train] == label) & (test == j))
        own = column[np.searchsorted(members, train[these])]
        rank[these] = 1 + (column[None, :] > own[:, None]).sum(axis=1)
        size[these] = len(members)
    return FoundAgain(
        train_index=train,
        test_index=test,
        label=run.classes[codes[0][train]],
        influence_published=np.asarray(published.influence),
        influence=here.value,
        stderr=here.stderr,
        memorization=memorization,
        rank=rank,
        class_size=size,
        found=(here.value >= infl) & (memorization >= mem),
        mean_stderr=mean_influence_stderr(estimates.arms, train, test),
    )


def mean_influence_stderr(arms: Arms, train: np.ndarray, test: np.ndarray, *, draws: int = DRAWS) -> float:
    """The standard error of the mean influence of pairs (train[p], test[p]); NaN below two clusters of trials."""
    drawn_in = _drawn(arms.in_trials, draws, 0)
    drawn_out = drawn_in if arms.shared else _drawn(arms.out_trials, draws, 1)
    if min(drawn_in.shape[1], drawn_out.shape[1]) == 0:
        return float("nan")
    total, known = np.zeros(draws), np.zeros(draws)
    at_once = max(1, BITS_AT_ONCE // max(len(part) for part in arms.parts))
    for start in range(0, len(train), at_once):
        some = train[start : start + at_once], test[start : start + at_once]
        values = _shares_right(arms.in_trials, drawn_in, *some, 1) - _shares_right(arms.out_trials, drawn_out, *some, 0)
        total += np.nansum(values, axis=1)
        known += np.isfinite(values).sum(axis=1)
    means = total[known > 0] / known[known > 0]
    return float(means.std(ddof=1)) if len(means) > 1 else float("nan")


def _drawn(trials: Trials, draws: int, arm: int) -> np.ndarray:
    """How often each draw has each trial, (draws, trials); (draws, 0) where there is nothing to draw from."""
    ids, cluster = np.unique(trials.numbers // trials.cluster, return_inverse=True)
    if len(ids) < 2:
        return np.empty((draws, 0))
    picked = generator(0, "resample", arm).integers(0, len(ids), (draws, len(ids)))
    times = np.stack([np.bincount(one, minlength=len(ids)) for one in picked])  # (draws, clusters)
    return times[:, cluster].astype(np.float32)


def _shares_right(trials: Trials, times: np.ndarray, train: np.ndarray, test: np.ndarray, kept: int) -> np.ndarray:
    """The share that is right among each draw's trials that kept the example (or did not), (draws, pairs)."""
    of = bits_at(trials.mask, train) == kept  # (trials, pairs)
    right = of & (bits_at(trials.test_correct, test) == 1)
    with np.errstate(invalid="ignore"):  # 0 / 0: the draw cannot say
        return np.asarray((times @ right.astype(np.float32)).astype(float) / (times @ of.astype(np.float32)))
