"""What the overview says about a run, in numbers."""

from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.estimators import Memorization
from memfluence.estimators.counts import column_counts
from memfluence.report._examples import INFLUENCE, MEMORIZED
from memfluence.report._histogram import histogram

if TYPE_CHECKING:
    from memfluence.findings import Pairs
    from memfluence.runs import Run

__all__ = ["chosen_keep", "facts_of", "test_accuracies"]


def chosen_keep(run: "Run", keep: float | None) -> tuple[float | None, list[float]]:
    """The fraction that is shown (the largest, where the run has several and none is asked for), and the others."""
    keeps = sorted({kind.keep for kind in run.info.kinds if kind.keep is not None})
    if keep is None and len(keeps) > 1:
        keep = keeps[-1]
    shown = run.influence_estimates(keep).arms.keep
    return keep, [fraction for fraction in keeps if fraction != shown]


def test_accuracies(run: "Run", keep: float | None) -> np.ndarray:
    """How often models are right on each test example, (n_test,); NaN without trials."""
    parts = run.influence_estimates(keep).arms.parts
    trials = sum(map(len, parts))
    right = sum(column_counts(part.test_correct, part.n_test) for part in parts)
    return np.asarray(right) / trials if trials else np.full(run.info.n_test, np.nan)


test_accuracies.__test__ = False  # type: ignore[attr-defined]  # not for pytest


def facts_of(run: "Run", keep: float | None, scores: Memorization, pairs: "Pairs") -> dict[str, Any]:
    """Counts, accuracies, the histogram and how sure it all is; what is not known is None."""
    arms = run.influence_estimates(keep).arms
    known = ~np.isnan(scores.value)
    memorized = scores.value >= MEMORIZED  # NaN is never at least anything
    bins = histogram(scores.value)
    return {
        "trials": sum(map(len, arms.parts)),
        "trialsWanted": run.info.trials,
        "keep": arms.keep,
        "accuracyIn": _mean(scores.accuracy_in, scores.trials_in),
        "accuracyOut": _mean(scores.accuracy_out, scores.trials_out),
        "testAccuracy": _number(test_accuracies(run, keep).mean()),
        "trialsIn": _number(np.median(scores.trials_in)),
        "trialsOut": _number(np.median(scores.trials_out)),
        "stderr": _number(np.median(scores.stderr[known])) if known.any() else None,
        "stderrOfMemorized": _number(np.median(scores.stderr[memorized])) if memorized.any() else None,
        "surelyMemorized": int((scores.lower >= MEMORIZED).sum()),
        "memorized": int(memorized.sum()),
        "known": int(known.sum()),
        "meanMemorization": _number(scores.value[known].mean()) if known.any() else None,
        "histogram": {"edges": bins.edges.tolist(), "counts": bins.counts.tolist(), "missing": bins.missing},
        "thresholds": {"memorization": MEMORIZED, "influence": INFLUENCE},
        "pairs": dict(pairs.summary)
        | {"byChance": _number(pairs.expected_by_chance), "tested": pairs.tested, "warning": pairs.warning},
    }


def _mean(accuracy: np.ndarray, trials: np.ndarray) -> float | None:
    """Mean accuracy over all models and examples; None where there are none."""
    known = trials > 0
    return float(np.average(accuracy[known], weights=trials[known])) if known.any() else None


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
