"""Is an influence more than chance? One-sided p-values, and which of millions of them to believe.

Null. infl <= 0 by default, or infl <= `null`, a threshold of the caller's. Small p-values speak for influence above it.

Estimators, from the counts of one pair: x of a models right that kept the example, y of b that did not.
- null = 0: Fisher's exact test, P[X >= x] for X hypergeometric (x + y right ones among a + b, a drawn). It is the
  p-value of all permutations of the trials, exact for any number of them; conservative, since counts are discrete.
- another null: the score test (x/a - y/b - null) / s with s from the proportions that fit best under p - q = null
  (Miettinen and Nurminen 1985, Statistics in Medicine 4, 213-226; closed form of Farrington and Manning 1990),
  corrected for skewness (Gart and Nam 1990, Biometrics 46, 637-643) and referred to the normal distribution. It is
  asymptotic; the correction is what keeps small p-values honest, where most models are right above all: without it
  p-values of 0.0001 occur 2 to 5 times too often with 97 and 41 models, with it less often than that.

Many pairs. The false discovery rate is the expected share of pairs at or below the null among those selected.
Benjamini and Hochberg (1995): of m tested pairs select the k smallest p-values, k the largest with p_(k) <= k/m * rate.
That holds for independent tests and for positively dependent ones. Pairs share their trials, so their dependence is
unknown: Benjamini and Yekutieli (2001) divides the rate by 1 + 1/2 + ... + 1/m, which holds under any dependence.
`docs/statistics.md` has what either realises. A q-value is the lowest rate at which its pair is still selected.

Failure cases. An empty arm: p = 1. Trials that are not independent (`repeats`, `balanced`): give counts that are scaled
down to the number of independent models, and the score test is used for every null, since Fisher's needs integers.
"""

from typing import Any

import numpy as np


def p_values(
    in_correct: Any, trials_in: Any, out_correct: Any, trials_out: Any, *, null: float = 0.0, exact: bool = True
) -> np.ndarray:
    """One-sided p-values of p_in - p_out <= null; the arguments are counts and broadcast.

    `exact=False` uses the score test for null = 0 as well; it also takes counts that are not integers.
    """
    if null == 0 and exact:
        return fisher_p_values(in_correct, trials_in, out_correct, trials_out)
    from scipy.special import ndtr

    statistic = score_statistic(in_correct, trials_in, out_correct, trials_out, null, skewness=True)
    return np.asarray(np.where(np.isnan(statistic), 1.0, ndtr(-statistic)))


def fisher_p_values(in_correct: Any, trials_in: Any, out_correct: Any, trials_out: Any) -> np.ndarray:
    """P[X >= in_correct] given all margins, relative error about 1e-11.

    Each distinct table is computed once: few counts occur often among millions of pairs.
    """
    counts = np.broadcast_arrays(in_correct, trials_in, out_correct, trials_out)
    x, a, y, b = (np.asarray(count, dtype=np.int64).ravel() for count in counts)
    if not len(x):
        return np.ones(counts[0].shape)
    base = int(max(a.max(), b.max())) + 1
    if base < 2**15:  # four counts fit one number
        keys, back = np.unique(((x * base + a) * base + y) * base + b, return_inverse=True)
        keys, b = np.divmod(keys, base)
        keys, y = np.divmod(keys, base)
        x, a = np.divmod(keys, base)
    else:
        back = np.arange(len(x))
    return _hypergeometric_tail(x, a + b, x + y, a)[back].reshape(counts[0].shape)


def _hypergeometric_tail(x: np.ndarray, n: np.ndarray, right: np.ndarray, a: np.ndarray) -> np.ndarray:
    """P[X >= x], where X is how many of `a` models drawn from `n` are among the `right` ones; all (tables,)."""
    upper = x * n > a * right  # above the mean: sum this tail, else the other one, so that terms always fall
    # the term at which the sum starts, and the sum over the terms beyond it in units of that term
    start = np.where(upper, x, x - 1).astype(np.float64)
    n, right, a = (count.astype(np.float64) for count in (n, right, a))
    step = np.where(upper, 1.0, -1.0)
    total, term, k = np.ones_like(start), np.ones_like(start), start.copy()
    active = np.arange(len(start))
    while len(active):
        i, up = active, upper[active]
        more = (right[i] - k[i]) * (a[i] - k[i]) / ((k[i] + 1) * (n[i] - right[i] - a[i] + k[i] + 1)).clip(1e-300)
        less = k[i] * (n[i] - right[i] - a[i] + k[i]) / ((right[i] - k[i] + 1) * (a[i] - k[i] + 1)).clip(1e-300)
        term[i] *= np.where(up, more, less)
        total[i] += term[i]
        k[i] += step[i]
        active = i[term[i] > 1e-17 * total[i]]
    possible = (start >= np.maximum(0, a + right - n)) & (start <= np.minimum(a, right))
    first = np.exp(_log_probability(np.where(possible, start, 0), n, right, a, possible))
    tail = np.where(possible, first * total, 0.0)
    return np.minimum(np.where(upper, tail, 1.0 - tail), 1.0)


def _log_probability(
    k: np.ndarray, n: np.ndarray, right: np.ndarray, a: np.ndarray, possible: np.ndarray
) -> np.ndarray:
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(n.max()) + 1)))])

    def log_choose(total: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        whole, part = total.astype(np.int64), np.where(possible, chosen, 0).astype(np.int64)
        return np.asarray(log_factorial[whole] - log_factorial[part] - log_factorial[whole - part])

    return np.asarray(log_choose(right, k) + log_choose(n - right, a - k) - log_choose(n, a))


def score_statistic(
    in_correct: Any, trials_in: Any, out_correct: Any, trials_out: Any, null: Any, *, skewness: bool = False
) -> np.ndarray:
    """(p_in - p_out - null) in standard errors under p_in - p_out = null; NaN where an arm is empty.

    The variance has Miettinen and Nurminen's factor n / (n - 1). With `skewness` it is closer to normal in the tails.
    """
    a, b = np.asarray(trials_in, dtype=float), np.asarray(trials_out, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = np.asarray(in_correct) / a, np.asarray(out_correct) / b
        under_p, under_q = _fitted_under(p, q, b / a, np.asarray(null, dtype=float))
        variance = (under_p * (1 - under_p) / a + under_q * (1 - under_q) / b) * (a + b) / (a + b - 1)
        distance = p - q - null
        # where the null leaves no variance, any distance from it is beyond doubt, and none is none
        score = np.asarray(np.where(distance == 0, 0.0, distance / np.sqrt(variance)))
        if not skewness:
            return score
        third = under_p * (1 - under_p) * (1 - 2 * under_p) / a**2 - under_q * (1 - under_q) * (1 - 2 * under_q) / b**2
        bend = np.where(variance > 0, third / variance**1.5 / 6, 0.0)
        # the w with w + bend * (w^2 - 1) = score (Cornish and Fisher), in a form that knows bend = 0
        shifted = score + bend
        return np.asarray(2 * shifted / (1 + np.sqrt(np.maximum(1 + 4 * bend * shifted, 0))))


def _fitted_under(p: np.ndarray, q: np.ndarray, ratio: np.ndarray, null: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The proportions with p - q = null that make the outcomes most likely: Farrington and Manning's cubic."""
    a = 1 + ratio
    b = -(1 + ratio + p + ratio * q + null * (ratio + 2))
    c = null * null + null * (2 * p + ratio + 1) + p + ratio * q
    d = -p * null * (1 + null)
    v = (b / (3 * a)) ** 3 - b * c / (6 * a * a) + d / (2 * a)
    u = np.copysign(np.sqrt(np.maximum((b / (3 * a)) ** 2 - c / (3 * a), 0)), v)
    cosine = np.clip(np.divide(v, u**3, out=np.zeros(np.shape(v)), where=u != 0), -1, 1)
    fitted = 2 * u * np.cos((np.pi + np.arccos(cosine)) / 3) - b / (3 * a)
    fitted = np.clip(fitted, np.maximum(0, null), np.minimum(1, 1 + null))
    return fitted, fitted - null


def q_values(p_values: np.ndarray, tested: int, *, any_dependence: bool = False) -> np.ndarray:
    """The lowest false discovery rate at which each is selected, among `tested` pairs of which these are the smallest.

    Those left out must have larger p-values; q-values below the smallest of theirs are then what all would give.
    """
    order = np.argsort(p_values, kind="stable")
    rank = np.arange(1, len(order) + 1)
    scaled = p_values[order] * tested / rank  # (pairs,)
    if any_dependence:
        scaled *= harmonic(tested)
    q = np.empty(len(order))
    q[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return q


def harmonic(count: int) -> float:
    """1 + 1/2 + ... + 1/count."""
    if count < 10**6:
        return float(np.sum(1 / np.arange(1, count + 1)))
    return float(np.log(count) + np.euler_gamma + 1 / (2 * count))  # error below 1 / (12 count**2)
