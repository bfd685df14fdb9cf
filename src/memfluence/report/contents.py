"""What the page shows, taken from a run: facts, a histogram, some training examples, some pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memfluence.estimators.counts import column_counts, pair_counts
from memfluence.findings import Pairs
from memfluence.report.groups import groups_of
from memfluence.report.histogram import Histogram, histogram

if TYPE_CHECKING:
    from memfluence.api import Run

__all__ = ["INFLUENCE", "MEMORIZED", "Carrier", "Contents", "Example", "contents_of"]

MEMORIZED, INFLUENCE = 0.25, 0.15  # the paper's thresholds
EXAMPLES = 16  # of the most and of the least memorized
CARRIERS, CARRIED = 12, 4  # training examples with pairs, and test examples of each


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


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything on the page but the inputs."""

    trials: int  # of the keep fraction shown
    keep: float | None
    other_keeps: tuple[float | None, ...]  # fractions of the run that are not shown
    accuracy_in: float
    accuracy_out: float
    test_accuracy: float
    trials_in: float  # median over training examples
    trials_out: float
    typical_stderr: float  # the largest half-way one: median among memorized examples, or among all
    histogram: Histogram
    memorized: int
    most: Sequence[Example]
    least: Sequence[Example]
    pairs: Pairs
    carriers: Sequence[Carrier]


def contents_of(run: "Run", keep: float | None = None) -> Contents:
    """What the page says about one keep fraction: the given one, or the largest where the run has several."""
    keeps = list(dict.fromkeys(kind.keep for kind in run.info.kinds))
    if keep is None and len(keeps) > 1:
        keep = max(fraction for fraction in keeps if fraction is not None)
    arms = run.influence_estimates(keep).arms
    columns = run.memorization_columns(keep)
    values = columns["memorization"]  # (n_train,)
    known = np.flatnonzero(~np.isnan(values))
    ascending = known[np.argsort(values[known], kind="stable")]  # ties to the lower index, as everywhere
    descending = known[np.argsort(-values[known], kind="stable")]
    memorized = values >= MEMORIZED  # NaN is never at least anything
    pairs = run.find_pairs(MEMORIZED, INFLUENCE, keep=keep)

    def examples(rows: np.ndarray) -> list[Example]:
        return [
            Example(
                int(row),
                int(run.label_codes[0][row]),
                *(float(columns[name][row]) for name in ("memorization", "stderr", "accuracy_in", "accuracy_out")),
            )
            for row in rows
        ]

    every_trial = [arms.in_trials] if arms.shared else [arms.in_trials, arms.out_trials]
    right = sum(int(column_counts(part.test_correct, part.n_test).sum()) for part in every_trial)
    trials = sum(len(part) for part in every_trial)
    return Contents(
        trials=trials,
        keep=arms.keep,
        other_keeps=tuple(fraction for fraction in keeps if fraction != arms.keep),
        accuracy_in=_mean(columns["accuracy_in"], columns["trials_in"]),
        accuracy_out=_mean(columns["accuracy_out"], columns["trials_out"]),
        test_accuracy=right / (trials * run.info.n_test) if trials else float("nan"),
        trials_in=float(np.median(columns["trials_in"])),
        trials_out=float(np.median(columns["trials_out"])),
        typical_stderr=_median(columns["stderr"][memorized if memorized.any() else known]),
        histogram=histogram(values),
        memorized=int(memorized.sum()),
        most=examples(descending[:EXAMPLES]),
        least=examples(ascending[:EXAMPLES]),
        pairs=pairs,
        carriers=_carriers(run, pairs, keep, examples),
    )
