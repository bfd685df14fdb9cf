"""Data Shapley values: what an example adds, on average over subsets of which every size counts alike.

Definition. With a(k) = E[U(S) | |S| = k, i in S] and b(k) = E[U(S) | |S| = k, i not in S] over uniform subsets,

    phi_i = 1/n * sum over k = 0..n-1 of (a(k+1) - b(k))
          = 1/n * (U(all) - U(none) + sum over k = 1..n-1 of (a(k) - b(k)))

since a(n) = U(all) and b(0) = U(none): the second form needs, at each size, the two sides of the same trials.

Estimator. Trials of the `uniform` design have sizes k uniform in 1..n. Give a trial the weight w_i = n/k if it kept i
and -n/(n-k) if it did not (for k = n: 1). Within a size, E[w_i U] = a(k) - b(k) and E[w_i] = 0 (for k = n they are
U(all) and 1), so for any function c of the size alone

    E[w_i * (U - c(k))] + (c(n) - U(none)) / n = phi_i.

The estimate is the mean of the left side over trials. c takes away what the size explains, which is most of the spread
of U; it is a local line through the utilities of the nearest sizes, fitted to the other four fifths of the trials, so
that it is independent of the trial that it is used on and the estimate stays exactly unbiased for any number of
trials.

U(none) cannot be trained and has to be said (`empty`): 1 / number of classes where the outcome is right or wrong, that
of a guess. It shifts all values alike. Without it, and with designs whose smallest subset is m > 1, sizes start at m:

    phi_i = 1/(n-m) * sum over k = m..n-1 of (a(k+1) - b(k)),

the mean contribution to subsets of at least m examples. That is a semivalue (null examples get 0, equal ones equal
values), not Shapley's: it leaves out what the first examples of all add. At size m only trials that left i out count.

Efficiency. Weights of one trial add up to 0 over examples (k < n), so with `empty` the values add up to c(n) - U(none)
plus the trials of size n: U(all) - U(none) in expectation.

Variance. The terms of the mean are independent given c; their sample variance over the number of trials. Within a size
E[w**2] = n/k + n/(n-k), about 2 ln n on average (for Banzhaf values it is 4): the few examples of tiny subsets weigh
most, and their residuals are the largest. Trials are whole observations, as in `estimators/banzhaf.py`, and shared by
all examples.

Failure cases. NaN with fewer than two trials. Intervals are normal: with few trials, or where tiny subsets dominate,
they are too short. Trials that fail because of their subsets (too small, one class) are not missing at random: use a
larger smallest subset.

Paper: see `estimators/banzhaf.py`. The semivalue notation is that of Kwon and Zou (2022), Beta Shapley, arXiv
2110.14049.
"""

from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._values import checked_utility, subset_sizes, sums_kept
from memfluence.estimators.intervals import Difference, normal_difference
from memfluence.records import Trials

FOLDS = 5
NEAREST = 20  # trials that the usual utility of a size comes from, or a hundredth of them if that is more


def shapley_values(trials: Trials, utility: Any, *, smallest: int = 1, empty: float | None = None) -> Difference:
    """Shapley values from trials of the uniform design, with sizes from `smallest` on, and their utilities (trials,).

    `empty` is the utility of no training at all; without it, values are mean contributions to subsets of at least
    `smallest` examples.
    """
    worth, n = checked_utility(trials, utility), trials.n_train
    if empty is not None and smallest != 1:
        raise InputError(
            f"The empty subset says nothing where the smallest has {smallest} examples; leave out `empty`."
        )
    sizes = subset_sizes(trials)  # (trials,)
    if len(trials) and (sizes.min() < smallest or smallest < 1):
        raise InputError(f"There are subsets of {sizes.min()} examples, but the design's smallest has {smallest}.")
    if len(trials) < 2:
        return normal_difference(np.full(n, np.nan), np.full(n, np.nan))
    first = 0 if empty is not None else smallest  # the m of the formula
    scale = (n - smallest + 1) / (n - first)  # sizes drawn per size that counts
    usual, whole, start = _usual_utility(sizes, worth, [n, smallest])  # (trials,) each
    start = start if empty is None else np.full(len(trials), float(empty))
    residual = scale * (worth - usual)
    with np.errstate(divide="ignore"):
        weight_in = np.where(sizes == n, 1.0, np.where(sizes == first, 0.0, n / sizes))  # (trials,)
        weight_out = np.where(sizes == n, 0.0, -n / (n - sizes))
    shared = (whole - start) / (n - first)  # (trials,) the same for all examples
    if_in, if_out = residual * weight_in + shared, residual * weight_out + shared  # (trials,) a term of the mean
    centre = float(np.mean(if_out))
    if_in, if_out = if_in - centre, if_out - centre  # so that squares lose no digits
    columns = np.stack([if_in - if_out, if_in**2 - if_out**2], axis=1)
    total, squares = sums_kept(trials, columns).T  # (n_train,) each, what the trials that kept differ by
    total, squares = total + if_out.sum(), squares + (if_out**2).sum()
    count = len(trials)
    return normal_difference(centre + total / count, (squares - total * total / count) / (count - 1) / count)


def _usual_utility(sizes: np.ndarray, worth: np.ndarray, at: list[int]) -> list[np.ndarray]:
    """The usual utility at each trial's own size, and at the sizes `at`, from the trials of the other folds."""
    fold = np.arange(len(sizes)) % min(FOLDS, len(sizes))
    found = [np.empty(len(sizes)) for _ in range(1 + len(at))]
    for one in np.unique(fold):
        here, others = fold == one, fold != one
        order = np.argsort(sizes[others], kind="stable")
        asked, place = np.unique([*sizes[here], *at], return_inverse=True)
        fitted = _local_line(sizes[others][order].astype(float), worth[others][order], asked)[place]
        found[0][here] = fitted[: len(fitted) - len(at)]
        for column, value in zip(found[1:], fitted[len(fitted) - len(at) :]):
            column[here] = value
    return found


def _local_line(sizes: np.ndarray, worth: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Utilities at some sizes: a straight line through the trials of the nearest sizes (trials ascending by size)."""
    width = min(len(sizes), max(NEAREST, len(sizes) // 100))
    first, last = (np.searchsorted(sizes, asked, side=side) for side in ("left", "right"))
    start = np.clip((first + last - width) // 2, 0, len(sizes) - width)
    found = np.empty(len(asked))
    for k, (size, begin) in enumerate(zip(asked, start)):
        x, y = sizes[begin : begin + width], worth[begin : begin + width]
        off = x - x.mean()
        spread = off @ off
        found[k] = y.mean() + (off @ y / spread * (size - x.mean()) if spread else 0.0)
    return found
