"""What the page shows, taken from a run: facts, a histogram, some training examples, some pairs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memfluence.estimators.counts import column_counts, pair_counts
from memfluence.findings import Pairs
from memfluence.report._groups import groups_of
from memfluence.report._histogram import Histogram, histogram

if TYPE_CHECKING:
    from memfluence.runs import Run

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
    other_keeps: tuple[float, ...]  # fractions of the run that are not shown
    accuracy_in: float
    accuracy_out: float
    test_accuracy: float
    trials_in: float  # median over training examples
    trials_out: float
    stderr: float  # median over the memorized examples, or over all where there are none
    histogram: Histogram
    memorized: int
    most: Sequence[Example]
    least: Sequence[Example]
    pairs: Pairs
    carriers: Sequence[Carrier]

    def shown(self, split: str) -> list[Example]:
        """Every example of the split that the page shows, each once."""
        if split == "train":
            found = [*self.most, *self.least, *(carrier.train for carrier in self.carriers)]
        else:
            found = [test for carrier in self.carriers for test in carrier.tests]
        return list({example.index: example for example in found}.values())


def contents_of(run: "Run", keep: float | None = None) -> Contents:
    """What the page says about one keep fraction: the given one, or the largest where the run has several."""
    keeps = sorted({kind.keep for kind in run.info.kinds if kind.keep is not None})
    if keep is None and len(keeps) > 1:
        keep = keeps[-1]
    arms = run.influence_estimates(keep).arms
    columns = run.memorization_columns(keep)
    values = columns["memorization"]  # (n_train,)
    known = np.flatnonzero(~np.isnan(values))
    listed = min(EXAMPLES, (len(known) + 1) // 2)  # of few examples none is both among the most and the least
    memorized = values >= MEMORIZED  # (n_train,), NaN is never at least anything
    pairs = run.find_pairs(MEMORIZED, INFLUENCE, keep=keep)
    parts = [arms.in_trials] if arms.shared else [arms.in_trials, arms.out_trials]
    trials = sum(map(len, parts))
    right = sum(int(column_counts(part.test_correct, part.n_test).sum()) for part in parts)
    return Contents(
        trials=trials,
        keep=arms.keep,
        other_keeps=tuple(fraction for fraction in keeps if fraction != arms.keep),
        accuracy_in=_mean(columns["accuracy_in"], columns["trials_in"]),
        accuracy_out=_mean(columns["accuracy_out"], columns["trials_out"]),
        test_accuracy=right / (trials * run.info.n_test) if trials else float("nan"),
        trials_in=float(np.median(columns["trials_in"])),
        trials_out=float(np.median(columns["trials_out"])),
        stderr=_median(columns["stderr"][memorized if memorized.any() else known]),
        histogram=histogram(values),
        memorized=int(memorized.sum()),
        # Stable sorts: ties go to the lower index, as in every ranking.
        most=_examples(run, columns, known[np.argsort(-values[known], kind="stable")][:listed]),
        least=_examples(run, columns, known[np.argsort(values[known], kind="stable")][:listed]),
        pairs=pairs,
        carriers=_carriers(run, columns, pairs, keep),
    )


def _examples(run: "Run", columns: Mapping[str, np.ndarray], rows: Iterable[int]) -> list[Example]:
    """Training examples with their memorization."""
    names = ("memorization", "stderr", "accuracy_in", "accuracy_out")
    labels = run.label_codes[0]
    return [Example(int(row), int(labels[row]), *(float(columns[name][row]) for name in names)) for row in rows]


def _carriers(run: "Run", columns: Mapping[str, np.ndarray], pairs: Pairs, keep: float | None) -> list[Carrier]:
    arms = run.influence_estimates(keep).arms
    labels = run.label_codes[1]
    carriers = []
    for group in groups_of(pairs, CARRIERS):
        rows = group.rows[:CARRIED]  # (tests,) positions in pairs
        train, test = pairs.train_index[rows], pairs.test_index[rows]
        right = pair_counts(arms.in_trials.mask, arms.in_trials.test_correct, train, test)  # (tests,)
        accuracy_in = right / arms.trials_in[train]
        tests = [
            Example(
                int(test[k]),
                int(labels[test[k]]),
                float(pairs.influence[row]),
                float(pairs.stderr[row]),
                float(accuracy_in[k]),
                float(accuracy_in[k] - pairs.influence[row]),
            )
            for k, row in enumerate(rows)
        ]
        carriers.append(
            Carrier(_examples(run, columns, [group.train_index])[0], tests, more=len(group.rows) - len(rows))
        )
    return carriers


def _mean(accuracy: np.ndarray, trials: np.ndarray) -> float:
    """Mean accuracy over all models and examples; NaN where there are none."""
    known = trials > 0
    return float(np.average(accuracy[known], weights=trials[known])) if known.any() else float("nan")


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else float("nan")
