"""Counts of memorization values in bins of 0.05, for the page and the figure alike."""

from dataclasses import dataclass

import numpy as np

BINS_PER_UNIT = 20  # so that 0.25 and the other usual thresholds are edges, exactly


@dataclass(frozen=True, eq=False)
class Histogram:
    """The number of values in each bin. A bin holds its lower edge; the last one also holds 1."""

    edges: np.ndarray  # (bins + 1,) from 0 or the lowest value's bin up to 1
    counts: np.ndarray  # (bins,) int64
    missing: int  # values that the trials cannot give

    @property
    def ticks(self) -> list[int]:
        """Counts worth a line across the chart: the powers of ten, and steps between them where there are few."""
        top = max(1, int(self.counts.max()))
        steps = (1, 2, 5) if top < 50 else (1,)
        return [step * 10**power for power in range(9) for step in steps if step * 10**power <= top]


def histogram(values: np.ndarray) -> Histogram:
    """The histogram of memorization values, (n_train,), of which some may be NaN."""
    known = values[~np.isnan(values)]
    first = min(0, int(np.floor(known.min() * BINS_PER_UNIT))) if len(known) else 0
    edges = np.arange(first, BINS_PER_UNIT + 1) / BINS_PER_UNIT  # (bins + 1,)
    bins = np.clip(np.searchsorted(edges, known, side="right") - 1, 0, len(edges) - 2)
    return Histogram(edges, np.bincount(bins, minlength=len(edges) - 1), len(values) - len(known))
