"""Examples with what is said about them: memorized ones, and those that carry test examples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memfluence.estimators.counts import pair_counts
from memfluence.findings import Pairs

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["INFLUENCE", "MEMORIZED", "Carrier", "Example", "carriers_of", "training_examples"]

MEMORIZED, INFLUENCE = 0.25, 0.15  # the paper's thresholds
CARRIED = 4  # test examples shown of each training example, as in the paper's figures


@dataclass(frozen=True)
class Example:
    """An example and one value of it: a training example's memorization, or the influence on a test example."""

    index: int
    label: int  # code
    value: float
    stderr: float
    accuracy_in: float  # of the models that kept the training example in question
    accuracy_out: float  # of those that left it out


@dataclass(frozen=True)
class Carrier:
    """A memorized training example, and the test examples of its class that it influences most, strongest first."""

    train: Example
    tests: Sequence[Example]
    pairs: int  # high-influence pairs that it is in; where fewer than `tests`, the others are below the threshold


def training_examples(run: "Run", rows: Iterable[int], keep: float | None) -> list[Example]:
    """Training examples with their memorization."""
    estimate = run.estimate_memorization(keep)
    columns = (estimate.value, estimate.stderr, estimate.accuracy_in, estimate.accuracy_out)
    labels = run.label_codes[0]
    return [Example(int(row), int(labels[row]), *(float(column[row]) for column in columns)) for row in rows]


def carriers_of(run: "Run", pairs: Pairs, wanted: int, keep: float | None, *, spread: bool = False) -> list[Carrier]:
    """Up to `wanted` training examples of the pairs, in the order of their highest influence.

    The first ones, or with `spread` ones evenly spaced over the whole order, so that a figure does not show the
    strongest alone (the paper's last appendix).
    """
    _, first = np.unique(pairs.train_index, return_index=True)
    order = np.sort(first)  # pairs come strongest first, so this is the order of the highest influence
    if spread and len(order) > wanted:
        order = order[np.linspace(0, len(order) - 1, wanted).astype(int)]
    trains = training_examples(run, pairs.train_index[order[:wanted]], keep)
    return [
        Carrier(train, _most_influenced(run, train, keep), int((pairs.train_index == train.index).sum()))
        for train in trains
    ]


def _most_influenced(run: "Run", train: Example, keep: float | None) -> list[Example]:
    estimates = run.influence_estimates(keep)
    labels = run.label_codes[1]
    candidates = np.flatnonzero(labels == train.label)
    values = estimates.block([train.index], candidates)[0]  # (candidates,)
    tests = candidates[np.argsort(-values, kind="stable")[:CARRIED]]
    trains = np.full_like(tests, train.index)
    found = estimates.at(trains, tests)
    arm = estimates.arms.in_trials
    accuracy_in = pair_counts(arm.mask, arm.test_correct, trains, tests) / estimates.arms.trials_in[train.index]
    columns = (found.value, found.stderr, accuracy_in, accuracy_in - found.value)
    return [
        Example(int(test), int(labels[test]), *(float(column[k]) for column in columns)) for k, test in enumerate(tests)
    ]
