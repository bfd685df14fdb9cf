"""Values corrected for selection: selected on one half of the trials, estimated on the other, both ways.

Definition. Among many noisy estimates those above a threshold are too high on average: they were selected for their
noise as well. An estimate from trials that took no part in the selection has no such bias.

Estimator. The trials are split at random into two halves (whole masks under `repeats`, whole blocks under `balanced`).
Pairs are selected on the first half, at the same thresholds for memorization and influence, and get their values from
the second; then the other way round.

What they describe. The pairs that *half* the trials select: a larger and noisier set than what all trials select, above
all where most of it is chance. A pair that both halves select occurs twice, once for each selection; every row's value
is unbiased for the pair it stands for, given the half that selected it, and so are means over rows. (One value for both
rows would be biased again: each half's estimate would be conditional on its own selection.)

Variance. Values come from half of the trials, so their variance is twice that of estimates from all. They beat the raw
values of the selecting half wherever selection matters (`docs/statistics.md`), and raw values of all trials where the
bias of those outweighs the variance: when few selected pairs are real.

Failure cases. Estimates that a half cannot give (never kept, or never left out there) are NaN and kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memfluence.estimators import Influence, Memory, arms, memorization_of
from memfluence.findings._selection import select
from memfluence.records import Kind, Trials
from memfluence.seeding import generator


@dataclass(frozen=True, eq=False)
class CrossFit:
    """One row per pair and half that selected it; largest corrected influence first."""

    train_index: np.ndarray  # (rows,) int64
    test_index: np.ndarray  # (rows,) int64
    half: np.ndarray  # (rows,) 0 or 1, the half that selected the pair
    influence: np.ndarray  # (rows,) from the other half
    stderr: np.ndarray  # (rows,)
    lower: np.ndarray  # (rows,) 95% interval
    upper: np.ndarray  # (rows,)
    memorization: np.ndarray  # (rows,) from the other half
    influence_selecting: np.ndarray  # (rows,) from the half that selected the pair: biased upwards

    def __len__(self) -> int:
        return len(self.train_index)

    def columns(self, train_labels: np.ndarray) -> dict[str, np.ndarray]:
        """Plain columns with the label of the training example, as its owner wrote it."""
        found = {name: getattr(self, name) for name in ("train_index", "test_index")}
        found["label"] = train_labels[self.train_index]
        values = ("influence", "stderr", "lower", "upper", "memorization", "half", "influence_selecting")
        return found | {name: getattr(self, name) for name in values}


def cross_fitted_pairs(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | Memory | None = None,
) -> CrossFit:
    """Pairs that each half of the trials selects, with the values that the other half gives them."""
    cap = Memory.of(memory)
    cap.check(trials.nbytes, "two halves of the trials", "fewer trials")
    both = [arms(half, kinds, keep) for half in halves(trials, seed)]
    parts = []
    for half, (here, there) in enumerate((both, both[::-1])):
        estimates, train, test = select(here, train_labels, test_labels, mem, infl, same_class, cap)
        fresh = Influence(there, memory=cap).at(train, test)
        raw = estimates.at(train, test).value
        memorized = memorization_of(there).value[train]
        parts.append(
            (
                train,
                test,
                np.full(len(train), half),
                fresh.value,
                fresh.stderr,
                fresh.lower,
                fresh.upper,
                memorized,
                raw,
            )
        )
    columns = [np.concatenate(both_parts) for both_parts in zip(*parts)]
    order = np.lexsort((columns[2], columns[1], columns[0], -columns[3]))
    return CrossFit(*(column[order] for column in columns))


def halves(trials: Trials, seed: int = 0, number: int = 0) -> tuple[Trials, Trials]:
    """Two halves of the trials at random, clusters kept together; of each kind as many in both, but for one.

    Each number gives another split.
    """
    cluster = trials.numbers // trials.cluster
    first = np.zeros(len(trials), dtype=bool)
    rng = generator(seed, "resample", number)
    for kind in np.unique(trials.kinds):
        ids = np.unique(cluster[trials.kinds == kind])
        chosen = ids[rng.permutation(len(ids))[: len(ids) // 2]]
        first |= (trials.kinds == kind) & np.isin(cluster, chosen)
    return trials.select(first), trials.select(~first)
