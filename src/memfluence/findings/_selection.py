"""Which pairs are looked at, and which of them pass: by value, or by p-value."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Block, Influence, class_members, memorization_of, p_values

__all__ = ["check_error_control", "select", "significant", "tested_blocks"]

ESTIMATES_AT_ONCE = 2**22  # 32 MB in float64


def tested_blocks(
    candidates: np.ndarray, train_labels: np.ndarray, test_labels: np.ndarray, same_class: bool
) -> Iterator[Block]:
    """All pairs of the candidates with test examples (of their class), in blocks of bounded size."""
    if same_class:
        members = class_members(train_labels[candidates], test_labels)
        groups = [(candidates[rows], columns) for _, rows, columns in members if len(rows)]
    else:
        groups = [(candidates, np.arange(len(test_labels)))]
    for rows, columns in groups:
        at_once = max(1, ESTIMATES_AT_ONCE // max(1, len(rows)))
        for start in range(0, len(columns), at_once):
            yield rows, columns[start : start + at_once]


def select(
    arms: Arms, train_labels: np.ndarray, test_labels: np.ndarray, mem: float, infl: float, same_class: bool
) -> tuple[Influence, np.ndarray, np.ndarray]:
    """The whole selection by thresholds: (estimates, train, test)."""
    estimates = Influence(arms)
    memorized = np.flatnonzero(memorization_of(arms).value >= mem)  # NaN is never at least anything
    return estimates, *estimates.at_least(infl, tested_blocks(memorized, train_labels, test_labels, same_class))


def significant(
    estimates: Influence, blocks: Sequence[Block], null: float, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(train, test, p-value) of the pairs whose p-value is at most `level`, which must be below 1/2."""
    arms = estimates.arms
    independent = arms.in_trials.cluster == 1
    trains, tests, found = [], [], []
    for rows, columns in blocks:
        x, a, y, b = estimates.counts(rows, columns)
        # Influence at or below the null has a p-value of 1/2 or more: the median of a hypergeometric distribution is
        # its mean, rounded down or up.
        row, column = np.nonzero(x / a - y / b > null)
        four = [x[row, column], a[row, 0], y[row, column], b[row, 0]]
        if not independent:  # as many as independent models would be
            kept = rows[row]
            scale_in, scale_out = arms.sample_in[kept] / four[1], arms.sample_out[kept] / four[3]
            four = [four[0] * scale_in, four[1] * scale_in, four[2] * scale_out, four[3] * scale_out]
        p = p_values(*four, null=null, exact=independent)
        low = p <= level
        trains.append(rows[row[low]])
        tests.append(columns[column[low]])
        found.append(p[low])
    return _joined(trains), _joined(tests), np.concatenate([np.empty(0), *found])


def check_error_control(fdr: float, null: float, device: str) -> None:
    if device != "cpu":
        raise InputError(f"p-values are computed on the CPU, not on {device!r}; leave out the device, or the rate.")
    if not 0 < fdr < 0.5:
        raise InputError(f"The false discovery rate must be above 0 and below 0.5. Got {fdr!r} instead.")
    if not -1 < null < 1:
        raise InputError(f"The null must be an influence between -1 and 1. Got {null!r} instead.")


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
