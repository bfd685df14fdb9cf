"""Memorization: how much more often models are right on a training example that they saw.

Definition (the paper's eq. 1, on random subsets I of the training set as in Sec. 2):

    mem(i) = P[h(x_i) = y_i | i in I] - P[h(x_i) = y_i | i not in I]

Estimator. The proportion of right models among the trials that kept i, minus that among those that left it out: two
divisions of exact integers in float64 (Algorithm 1). It is influence on the example itself.

Variance. p(1-p)/trials_in + q(1-q)/trials_out; standard errors and intervals as in `estimators/intervals.py`,
also where trials are not independent.

Failure cases. NaN where an example was never kept or never left out. Near 1 it means "never right unless seen",
near 0 "right anyway" or "wrong anyway": read it with accuracy_in and accuracy_out. It depends on the keep fraction:
the smaller the subsets, the more examples count as memorized. Under the `fixed` design the held-out models have m
other examples, not m - 1 (see `estimators/influence.py`).

Paper: Sec. 1.1 (eq. 1), Sec. 2 (Algorithm 1), App. A (the Lemma).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memfluence.estimators._arms import Arms, arms
from memfluence.estimators.counts import column_counts
from memfluence.estimators.intervals import clustered_difference, difference
from memfluence.records import Kind, Trials


@dataclass(frozen=True, eq=False)
class Memorization:
    """One value per training example, each array (n_train,); NaN where an arm is empty."""

    value: np.ndarray
    stderr: np.ndarray
    lower: np.ndarray  # 95% interval
    upper: np.ndarray
    mean_in: np.ndarray  # mean outcome of the models that kept the example: their accuracy, where outcomes are 1 and 0
    mean_out: np.ndarray
    trials_in: np.ndarray  # int64
    trials_out: np.ndarray  # int64
    p_value: np.ndarray | None = None  # one-sided, of memorization <= 0; of real outcomes alone

    @property
    def accuracy_in(self) -> np.ndarray:
        return self.mean_in

    @property
    def accuracy_out(self) -> np.ndarray:
        return self.mean_out


def memorization(trials: Trials, kinds: Sequence[Kind], keep: float | None = None) -> Memorization:
    """Memorization of every training example, from the trials of one keep fraction."""
    return memorization_of(arms(trials, kinds, keep))


def memorization_of(arms: Arms) -> Memorization:
    """The same, from arms already chosen."""
    in_trials, out_trials = arms.in_trials, arms.out_trials
    in_correct = column_counts(in_trials.train_correct, arms.n_train, among=in_trials.mask)  # (n_train,)
    seen_correct = (
        in_correct if arms.shared else column_counts(out_trials.train_correct, arms.n_train, among=out_trials.mask)
    )
    out_correct = column_counts(out_trials.train_correct, arms.n_train) - seen_correct  # (n_train,)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: the trials cannot say
        accuracy_in = in_correct / arms.trials_in  # (n_train,)
        accuracy_out = out_correct / arms.trials_out  # (n_train,)
    if in_trials.cluster > 1 and arms.shared:
        everyone = np.arange(arms.n_train)
        found = clustered_difference(arms, in_trials.train_correct, everyone, everyone)
    else:
        found = difference(
            in_correct,
            arms.trials_in,
            out_correct,
            arms.trials_out,
            sample_in=arms.sample_in,
            sample_out=arms.sample_out,
        )
    return Memorization(**vars(found), mean_in=accuracy_in, mean_out=accuracy_out, **arms.counts)
