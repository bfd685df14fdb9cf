"""Influences for the example pages: the strongest of each example within its class.

Within the class, as in the paper's selection of pairs: among all training examples noise alone would fill the lists.
Nothing here holds the matrix: one class, or a part of it, at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memfluence.estimators import Influence, RealInfluence, class_members, keep_largest
from memfluence.estimators.counts import kernels, pair_counts

if TYPE_CHECKING:
    from memfluence.runs import Run

TESTS, CARRIERS, HARMFUL, SIMILAR = 8, 12, 4, 6  # shown on an example's page
VALUES_AT_ONCE = 2**23
IN_CACHE = 2**17  # values that are looked at before they leave the cache: a megabyte
MANY = 5000  # training examples, whose lists are made many times faster by kernels that take a second to load
COMPARED_AT_ONCE = 2**25  # values of a class whose profiles are compared; larger classes go without
COMPARISONS = 2**42  # multiplications of a class that are worth their time


@dataclass(frozen=True, eq=False)
class Strongest:
    """Chosen pairs of examples in rows: (n, k) each; index -1 and NaN where there are fewer than k."""

    index: np.ndarray  # int64, on the other side
    influence: np.ndarray
    lower: np.ndarray  # 95% interval
    upper: np.ndarray
    accuracy_in: np.ndarray  # of models that kept the training example, on the test example
    accuracy_out: np.ndarray


@dataclass(frozen=True, eq=False)
class Details:
    carried: Strongest  # (n_train, TESTS): the test examples that each training example helps most
    carriers: Strongest  # (n_test, CARRIERS): the training examples that help each test example most
    harmful: Strongest  # (n_test, HARMFUL): those that hurt it most
    similar: np.ndarray  # (n_train, SIMILAR) int64: training examples with the most similar influences
    similarity: np.ndarray  # (n_train, SIMILAR): the correlation of the two rows of influence


def influence_details(run: "Run", keep: float | None, done: Callable[[float], None]) -> Details:
    """The lists of all examples; `done` is told the share that is finished."""
    estimates = run.influence_estimates(keep)
    labels = run.label_codes
    n_train, n_test = (len(codes) for codes in labels)
    carried = np.full((n_train, TESTS), -1)
    best, worst = np.full((n_test, CARRIERS), -1), np.full((n_test, HARMFUL), -1)
    similar, similarity = np.full((n_train, SIMILAR), -1), np.full((n_train, SIMILAR), np.nan)
    finished = 0
    if n_train > MANY:
        kernels()
    for _, rows, columns in class_members(*labels):
        finished += len(rows)
        if not len(rows) or not len(columns):
            continue
        compare = len(rows) * len(columns) <= COMPARED_AT_ONCE and len(rows) ** 2 * len(columns) <= COMPARISONS
        at_once = len(rows) if compare else max(1, VALUES_AT_ONCE // len(columns))
        helped, helpers = _none_yet(len(columns), CARRIERS)
        hurt, harmers = _none_yet(len(columns), HARMFUL)
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            values = np.ascontiguousarray(estimates.block(some, columns))  # (some, columns)
            helps, who = _none_yet(len(some), TESTS)
            keep_largest(values, columns, helps, who, 0, False)
            carried[some] = np.where(helps > 0, who, -1)
            keep_largest(values, some, helped, helpers, 0, True)
            keep_largest(-values, some, hurt, harmers, 0, True)
            if compare:
                similar[rows], similarity[rows] = _most_similar(values, rows)
        best[columns] = np.where(helped > 0, helpers, -1)  # only who helps
        worst[columns] = np.where(hurt > 0, harmers, -1)  # only who hurts
        done(finished / n_train)
    return Details(
        _with_errors(estimates, np.arange(n_train)[:, None], carried, carried),
        _with_errors(estimates, best, np.arange(n_test)[:, None], best),
        _with_errors(estimates, worst, np.arange(n_test)[:, None], worst),
        similar,
        similarity,
    )


def _none_yet(rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and indices (rows, k) for `keep_largest` to fill: highest first, ties to the lower index, NaN never."""
    return np.full((rows, k), np.nan), np.full((rows, k), -1)


def accuracies_of(
    estimates: Influence | RealInfluence, train: np.ndarray, test: np.ndarray, value: np.ndarray
) -> list[np.ndarray]:
    """Shares of right models, or mean scores, of those that kept the training example and of the others: (pairs,)."""
    if isinstance(estimates, RealInfluence):
        return list(estimates.means_at(train, test))
    arms = estimates.arms
    accuracy_in = pair_counts(arms.in_trials.mask, arms.in_trials.test_correct, train, test) / arms.trials_in[train]
    return [accuracy_in, accuracy_in - value]


def _most_similar(values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the rows that correlate most with it, and how much; what has no spread has no correlation."""
    correlation, index = _none_yet(len(rows), SIMILAR)
    centred = (values - values.mean(axis=1, keepdims=True)).astype(np.float32)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = np.where(norms > 1e-6, centred / norms, np.nan)  # (rows, columns)
    known = np.asarray(np.isfinite(unit).all(axis=1))  # (rows,)
    unit = np.nan_to_num(unit)
    at_once, in_cache = (max(1, values_at_once // len(rows)) for values_at_once in (VALUES_AT_ONCE, IN_CACHE))
    room = np.empty((min(at_once, len(rows)), len(rows)), np.float32)
    for start in range(0, len(rows), at_once):
        some = np.arange(start, min(start + at_once, len(rows)))
        found = np.matmul(unit[some], unit.T, out=room[: len(some)])  # (some, rows)
        if not known.all():
            found[:, ~known] = np.nan
            found[~known[some]] = np.nan
        found[np.arange(len(some)), some] = np.nan  # itself
        for first in range(0, len(some), in_cache):
            part = found[first : first + in_cache].astype(np.float64)
            keep_largest(part, rows, correlation, index, start + first, False)
    return index, correlation


def _with_errors(
    estimates: Influence | RealInfluence, train: np.ndarray, test: np.ndarray, index: np.ndarray
) -> Strongest:
    """Estimates, intervals and accuracies of the pairs of which `index`, (n, k), is one side."""
    there = index >= 0
    pairs = [np.broadcast_to(side, index.shape)[there] for side in (train, test)]
    found = estimates.at(*pairs)
    accuracies = accuracies_of(estimates, pairs[0], pairs[1], found.value)
    columns = [found.value, found.lower, found.upper, *accuracies]
    tables = [np.full(index.shape, np.nan) for _ in columns]
    for table, column in zip(tables, columns):
        table[there] = column
    return Strongest(index, *tables)
