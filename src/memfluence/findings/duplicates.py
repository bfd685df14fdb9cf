"""Train-test near-duplicates: training examples without which a test example is lost.

Definition. Pairs (i, j) with mem(i) >= 0.25 and infl(i, j) >= 0.4. Influence that high "almost always" means
"near duplicates or images from a set of photos taken together" (the paper's Sec. 3.4): the test example is right when i
was kept and wrong when it was not, as if i itself were asked. Worth knowing before a test accuracy is believed.

Estimator. Pairs as in `findings/pairs.py`, at these thresholds; the list is in the order of the lower end of the 95%
interval, ties in that of the influence on the margin where margins were recorded. `same_outcome` is the share of trials
in which the models are right on both or wrong on both: 1 for an exact copy under a deterministic prediction.

How many are chance? `expected_by_chance` counts the pairs that the same thresholds select from permuted masks, as for
`findings/pairs.py`: about 1 of 109 for 138 trials on CIFAR-100.

Failure cases. Duplicates that are easy, right with or without each other, or that come several at a time (any of them
teaches the test example) have no influence and are not found: these are the duplicates that matter to the accuracy,
not all. The interval of a pair does not know that the pair was selected. Estimates that the trials cannot give are
never selected.

Paper: Sec. 3.4; Barz and Denzler (2020) counted the near-duplicates of CIFAR-100.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from memfluence.estimators import arms
from memfluence.estimators.counts import bits_at
from memfluence.findings._selection import Selection, margins_of_ties
from memfluence.findings.pairs import high_influence_pairs
from memfluence.records import Kind, Trials


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Pairs of a training and a test example, the surest first; each array (pairs,)."""

    train_index: np.ndarray  # int64
    test_index: np.ndarray  # int64
    train_label: np.ndarray  # int64 codes
    test_label: np.ndarray
    influence: np.ndarray
    stderr: np.ndarray  # of the influence
    lower: np.ndarray  # 95% interval of the influence
    upper: np.ndarray
    memorization: np.ndarray  # of the training example
    same_outcome: np.ndarray
    expected_by_chance: float  # pairs that permuted masks give at the same thresholds; NaN if not computed

    def __len__(self) -> int:
        return len(self.train_index)

    def columns(self, classes: np.ndarray) -> dict[str, np.ndarray]:
        """Plain columns, labels as their owner wrote them."""
        values = ("influence", "stderr", "lower", "upper", "memorization", "same_outcome")
        return {
            "train_index": self.train_index,
            "test_index": self.test_index,
            "train_label": classes[self.train_label],
            "test_label": classes[self.test_label],
            **{name: getattr(self, name) for name in values},
        }


def train_test_duplicates(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,) codes
    test_labels: np.ndarray,  # (n_test,) codes
    *,
    mem: float = 0.25,
    infl: float = 0.4,
    permutations: int = 2,
    margins: np.ndarray | None = None,  # (trials, n_test), which order pairs with equal intervals
    **options: Unpack[Selection],
) -> Duplicates:
    """All pairs at or above both thresholds, in the order of the lower end of their interval."""
    given = trials, kinds, train_labels, test_labels
    pairs = high_influence_pairs(*given, mem=mem, infl=infl, permutations=permutations, **options)
    both = pairs.train_index, pairs.test_index
    ties = margins_of_ties(pairs.lower, *both, trials, kinds, margins, options.get("keep"))
    order = np.lexsort((*both[::-1], -ties, -pairs.lower))
    train, test = pairs.train_index[order], pairs.test_index[order]
    return Duplicates(
        train_index=train,
        test_index=test,
        train_label=train_labels[train],
        test_label=test_labels[test],
        influence=pairs.influence[order],
        stderr=pairs.stderr[order],
        lower=pairs.lower[order],
        upper=pairs.upper[order],
        memorization=pairs.memorization[order],
        same_outcome=_same_outcome(arms(trials, kinds, options.get("keep")).in_trials, train, test),
        expected_by_chance=pairs.expected_by_chance,
    )


def _same_outcome(trials: Trials, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Share of the trials with equal outcomes, (pairs,)."""
    share = np.empty(len(train))
    at_once = max(1, 2**24 // max(1, len(trials)))
    for start in range(0, len(train), at_once):
        some = slice(start, start + at_once)
        equal = bits_at(trials.train_correct, train[some]) == bits_at(trials.test_correct, test[some])
        share[some] = equal.mean(axis=0)
    return share
