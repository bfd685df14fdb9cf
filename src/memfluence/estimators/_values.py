"""Values of training examples: the utility of a trial, and sums over the trials that kept an example."""

from dataclasses import replace
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators.counts import bits_at
from memfluence.records import Trials

CELLS_AT_ONCE = 2**22  # of trials times examples, 32 MB in float64


def mean_utility(
    trials: Trials,
    outcome: np.ndarray | None,  # (trials, n_test)
    test: Any = None,
) -> np.ndarray:
    """Each trial's mean over the chosen test examples, (trials,): of right (1) and wrong (0), or of an outcome."""
    chosen = chosen_tests(trials.n_test, test)
    if outcome is not None and outcome.shape != (len(trials), trials.n_test):
        raise InputError(
            f"The outcomes must be (trials, n_test) = {(len(trials), trials.n_test)}. Got {outcome.shape}."
        )
    found = np.empty(len(trials))
    at_once = max(1, CELLS_AT_ONCE // len(chosen))
    for start in range(0, len(trials), at_once):
        some = slice(start, start + at_once)
        part = bits_at(trials.test_correct[some], chosen) if outcome is None else outcome[some][:, chosen]
        found[some] = part.mean(axis=1, dtype=float)
    return found


def chosen_tests(n_test: int, test: Any) -> np.ndarray:
    """Indices of the test examples asked for, all by default."""
    chosen = np.arange(n_test) if test is None else np.atleast_1d(np.asarray(test))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not len(chosen):
        raise InputError(f"The test examples must be a list of indices, at least one. Got {test!r} instead.")
    if chosen.min() < 0 or chosen.max() >= n_test:
        raise InputError(f"The test examples must be indices from 0 to {n_test - 1}. Got {test!r} instead.")
    return chosen.astype(np.int64)


def checked_utility(trials: Trials, utility: Any) -> np.ndarray:
    """(trials,) float64, finite."""
    array = np.asarray(utility)
    if array.shape != (len(trials),) or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise InputError(f"The utilities must be one finite number for each of the {len(trials)} trials.")
    return array.astype(float)


def kept_examples(trials: Trials) -> np.ndarray:
    """The examples that each trial kept, (trials, n_train) float64 of 0 and 1."""
    return np.unpackbits(trials.mask, axis=1, count=trials.n_train, bitorder="little").astype(np.float64)


def subset_sizes(trials: Trials) -> np.ndarray:
    """The number of examples that each trial kept, (trials,)."""
    ones = np.array([byte.bit_count() for byte in range(256)], dtype=np.int64)
    return np.array([ones[row].sum() for row in trials.mask], dtype=np.int64)  # row by row: little memory


def sums_kept(trials: Trials, columns: np.ndarray) -> np.ndarray:
    """For each training example, sums of columns (trials, c) over the trials that kept it: (n_train, c)."""
    total = np.zeros((trials.n_train, columns.shape[1]))
    at_once = max(1, CELLS_AT_ONCE // max(1, trials.n_train))
    for start in range(0, len(trials), at_once):
        some = slice(start, start + at_once)
        total += kept_examples(replace(trials, mask=trials.mask[some])).T @ columns[some]
    return total
