"""What the page shows, taken from a run: facts, a histogram, some training examples, some pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memfluence.estimators.counts import column_counts
from memfluence.findings import Pairs
from memfluence.report._examples import INFLUENCE, MEMORIZED, Carrier, Example, carriers_of, training_examples
from memfluence.report._histogram import Histogram, histogram

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["Contents", "contents_of"]

EXAMPLES = 16  # of the most and of the least memorized
CARRIERS = 12


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
    estimate = run.estimate_memorization(keep)
    values = estimate.value  # (n_train,)
    known = np.flatnonzero(~np.isnan(values))
    listed = min(EXAMPLES, (len(known) + 1) // 2)  # of few examples hardly one is both among the most and the least
    # Stable sorts: ties go to the lower index, as in every ranking.
    most, least = (known[np.argsort(sign * values[known], kind="stable")[:listed]] for sign in (-1, 1))
    memorized = values >= MEMORIZED  # (n_train,), NaN is never at least anything
    pairs = run.find_pairs(MEMORIZED, INFLUENCE, keep=keep)
    parts = [arms.in_trials] if arms.shared else [arms.in_trials, arms.out_trials]
    trials = sum(map(len, parts))
    right = sum(int(column_counts(part.test_correct, part.n_test).sum()) for part in parts)
    return Contents(
        trials=trials,
        keep=arms.keep,
        other_keeps=tuple(fraction for fraction in keeps if fraction != arms.keep),
        accuracy_in=_mean(estimate.accuracy_in, estimate.trials_in),
        accuracy_out=_mean(estimate.accuracy_out, estimate.trials_out),
        test_accuracy=right / (trials * run.info.n_test) if trials else float("nan"),
        trials_in=float(np.median(estimate.trials_in)),
        trials_out=float(np.median(estimate.trials_out)),
        stderr=_median(estimate.stderr[memorized if memorized.any() else known]),
        histogram=histogram(values),
        memorized=int(memorized.sum()),
        most=training_examples(run, most, keep),
        least=training_examples(run, least, keep),
        pairs=pairs,
        # Only what is carried: a test example below the threshold is left to the figures.
        carriers=[
            replace(carrier, tests=carrier.tests[: carrier.pairs])
            for carrier in carriers_of(run, pairs, CARRIERS, keep)
        ],
    )


def _mean(accuracy: np.ndarray, trials: np.ndarray) -> float:
    """Mean accuracy over all models and examples; NaN where there are none."""
    known = trials > 0
    return float(np.average(accuracy[known], weights=trials[known])) if known.any() else float("nan")


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else float("nan")
