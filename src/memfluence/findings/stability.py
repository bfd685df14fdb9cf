"""Stability: how much another run would differ. Errors of what is counted over pairs.

Definition. The standard deviation, over independent runs with as many trials, of the number of selected pairs, of their
mean influence, and of the Jaccard index between two such runs, with its mean.

Estimator. Pairs share their trials, so errors of single pairs do not add up; trials are resampled as a whole (whole
masks under `repeats`, whole blocks under `balanced`). Half of them, drawn without replacement, give estimates d* that
are about as far from the estimates d of all trials as those are from the truth. A run as it might have been is then mu
+ d* - d, where mu are true values drawn once from what the trials say about them (`findings/prediction.py`). Resampled
estimates alone would not do: they carry the noise of the trials at hand as well, and select far too many pairs. Nor
would a bootstrap with replacement: the size of its noise varies from resample to resample, and with it the number of
pairs.

Variance. `docs/statistics.md` compares these errors with the truth on simulated worlds.

Failure cases. As for `findings/prediction.py`, whose fit it needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Influence, Memory, arms, memorization_of
from memfluence.findings._selection import tested_blocks
from memfluence.findings.cross_fit import halves
from memfluence.findings.prediction import fit_pairs
from memfluence.records import Kind, Trials
from memfluence.seeding import generator


@dataclass(frozen=True)
class Stability:
    """The spread between independent runs with as many trials: standard deviations, and two means."""

    resamples: int
    pairs_stderr: float
    mean_influence_stderr: float
    expected_jaccard: float  # between two runs
    expected_jaccard_stderr: float  # of the index between two runs, not of its mean


def pair_stability(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    keep: float | None = None,
    resamples: int = 20,
    seed: int = 0,
    memory: str | int | Memory | None = None,
) -> Stability:
    """Errors of the counts that `high_influence_pairs` gives for these thresholds, from `resamples` resampled runs."""
    if resamples < 4:
        raise InputError(f"At least 4 resamples are needed to see a spread. Got {resamples} instead.")
    chosen, cap = arms(trials, kinds, keep), Memory.of(memory)
    everyone = np.arange(chosen.n_train)
    tested = list(tested_blocks(everyone, train_labels, test_labels, same_class))
    model = fit_pairs(chosen, tested, mem=mem, infl=infl, memory=cap)
    estimates = Influence(chosen, memory=cap)
    rng = generator(seed, "resample", 0)
    # what is added to a resample's estimates, mu - d; float32 keeps it small and is exact enough for noise
    shifts = []
    blocks = list(tested_blocks(model.rows, train_labels, test_labels, same_class))
    sizes = [len(rows) * len(columns) for rows, columns in blocks]
    needed = trials.nbytes + 4 * sum(sizes) + 6 * 8 * max(sizes, default=0)
    cap.check(
        needed,
        "one resampled run, and what is added to all of them",
        "a higher `mem`, or pairs without their stability",
    )
    for rows, columns in blocks:
        values = estimates.block(rows, columns)
        shifts.append((model.draw(values, columns, rng) - values).astype(np.float32))
    selected, means = [], []
    for number in range(resamples):
        again = arms(halves(trials, seed, number + 1)[0], kinds, keep)
        memorized = memorization_of(again).value >= mem  # (n_train,)
        once_more = Influence(again, memory=cap)
        pairs: list[np.ndarray] = [np.empty(0, np.int64)]
        values_of: list[np.ndarray] = [np.empty(0)]
        for (rows, columns), shift in zip(blocks, shifts):
            run = once_more.block(rows, columns) + shift
            row, column = np.nonzero((run >= infl) & memorized[rows, None])
            pairs.append(rows[row] * chosen.n_test + columns[column])
            values_of.append(run[row, column])
        selected.append(np.concatenate(pairs))
        found = np.concatenate(values_of)
        means.append(float(found.mean()) if len(found) else float("nan"))
    jaccard = [_jaccard(one, other) for one, other in zip(selected[::2], selected[1::2])]
    return Stability(
        resamples=resamples,
        pairs_stderr=float(np.std([len(one) for one in selected], ddof=1)),
        mean_influence_stderr=float(np.std(means, ddof=1)),
        expected_jaccard=float(np.mean(jaccard)),
        expected_jaccard_stderr=float(np.std(jaccard, ddof=1)),
    )


def _jaccard(one: np.ndarray, other: np.ndarray) -> float:
    shared = len(np.intersect1d(one, other, assume_unique=True))
    either = len(one) + len(other) - shared
    return shared / either if either else float("nan")
