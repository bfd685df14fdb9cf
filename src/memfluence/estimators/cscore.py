"""C-score: how often models are right on an example that they did not see, over several sizes of the training set.

Definition. Jiang et al. (2021), Characterizing Structural Regularities of Labeled Data in Overparameterized Models,
arXiv 2002.03206: C(i) = mean over keep fractions of P[h(x_i) = y_i | i not in I], the consistency of an example with
the rest. Near 1: the rest of the data teaches it, even little of it. Near 0: an exception, or mislabeled.

One number, several names. At a single fraction this is the `accuracy_out` that memorization is made of; it is also
Data-OOB (Kwon and Zou 2023, arXiv 2304.07718), whose bagged models hold examples out in the same way. They are not
several estimators, and nothing is gained by averaging them with each other.

Estimator. The proportion of right models among the trials that left i out, for each fraction, and their plain mean:
fractions with more trials do not weigh more.

Variance. Fractions have trials of their own, so variances add: sum of p(1-p)/trials_out over fractions**2, with one
right and one wrong trial added to each (as `estimators/intervals.py` does), so that it is never 0. Where several
models share a mask, masks are counted.

Failure cases. NaN where an example was never left out at one of the fractions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memfluence.estimators._arms import arms
from memfluence.estimators.memorization import memorization_of
from memfluence.records import Kind, Trials


@dataclass(frozen=True, eq=False)
class CScores:
    """One value per training example, (n_train,), and what it is the mean of, (fractions, n_train)."""

    value: np.ndarray
    stderr: np.ndarray
    keep: tuple[float | None, ...]
    accuracy_out: np.ndarray  # (fractions, n_train)
    trials_out: np.ndarray  # (fractions, n_train) int64


def c_scores(trials: Trials, kinds: Sequence[Kind]) -> CScores:
    """C-scores over all keep fractions of the run."""
    fractions = tuple(dict.fromkeys(kind.keep for kind in kinds))
    sides = [arms(trials, kinds, keep) for keep in fractions]
    accuracy = np.stack([memorization_of(side).accuracy_out for side in sides])  # (fractions, n_train)
    counted = np.stack([side.trials_out for side in sides])
    sample = np.stack([side.sample_out for side in sides]).astype(float)
    shrunk = (accuracy * sample + 1) / (sample + 2)  # NaN where there is no trial
    stderr = np.sqrt((shrunk * (1 - shrunk) / (sample + 2)).sum(axis=0)) / len(fractions)
    return CScores(accuracy.mean(axis=0), stderr, fractions, accuracy, counted)
