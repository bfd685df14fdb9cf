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
    """A memorized training example and the test examples that it carries, strongest first."""

    train: Example
    tests: Sequence[Example]
    more: int  # test examples that it carries beside these


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
    trains = pairs.train_index[order[:wanted]]
    return [
        Carrier(example, *_carried(run, pairs, np.flatnonzero(pairs.train_index == example.index), keep))
        for example in training_examples(run, trains, keep)
    ]


def _carried(run: "Run", pairs: Pairs, rows: np.ndarray, keep: float | None) -> tuple[list[Example], int]:
    """The test examples of the first of these pairs, and how many more there are."""
    arms = run.influence_estimates(keep).arms
    shown = rows[:CARRIED]
    train, test = pairs.train_index[shown], pairs.test_index[shown]
    right = pair_counts(arms.in_trials.mask, arms.in_trials.test_correct, train, test)  # (shown,)
    accuracy_in = right / arms.trials_in[train]
    columns = (pairs.influence[shown], pairs.stderr[shown], accuracy_in, accuracy_in - pairs.influence[shown])
    examples = [
        Example(int(index), int(run.label_codes[1][index]), *(float(column[k]) for column in columns))
        for k, index in enumerate(test)
    ]
    return examples, len(rows) - len(shown)
