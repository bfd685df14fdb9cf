"""The paper's Lemma 2.1: how far an influence estimate can be off, whatever the learner and the data.

Statement. Let m of n training examples be kept. Train t/2 models on random subsets J_1, ..., J_{t/2} of size m and t/2
on subsets of size m - 1. For a training example i and a test example z, let mu_1 be the share of models right on z
among those of the first half with i in J_k, and mu_2 among those of the second half with i not in J_k, each 1/2 where
there is no such model. Then mu = mu_1 - mu_2 satisfies

    E[(mu - infl_m(i, z))^2] <= n/(m t) + n/((n-m+1) t) + exp(-m t/(16 n))/4 + exp(-(n-m+1) t/(16 n))/4
                             <= 1/(p t) + 1/((1-p) t) + exp(-p t/16)/2        with p = min(m/n, 1 - m/n).

`docs/statistics.md` has the proof, and what its printed version has wrong (a denominator m - n + 1 for n - m + 1;
S_{T_k} for S_{I_k} in Algorithm 1).

An undefined term is 1/2 in the Lemma and in the study that checks it (`tests/studies.py`) alone: estimates say NaN.
"""

import math

from memfluence.errors import InputError


def lemma_bound(n_train: int, subset_size: int, trials: float, *, simple: bool = False) -> float:
    """Upper bound of the mean squared error; `simple` is the looser one of the statement, else that of the proof."""
    n, m, t = n_train, subset_size, trials
    if not (1 <= m < n and t > 0):
        raise InputError(f"The Lemma needs 1 <= subset size < n_train and trials > 0. Got {m}, {n} and {t} instead.")
    if simple:
        p = min(m / n, 1 - m / n)
        return 1 / (p * t) + 1 / ((1 - p) * t) + math.exp(-p * t / 16) / 2
    out = n - m + 1
    return n / (m * t) + n / (out * t) + math.exp(-m * t / (16 * n)) / 4 + math.exp(-out * t / (16 * n)) / 4


def lemma_trials(keep: float, stderr: float) -> int:
    """The least number of trials for which the Lemma promises a root mean squared error of `stderr` for every pair."""
    low, high = 1, 1
    size, n = round(keep * 10**6), 10**6
    while lemma_bound(n, size, high, simple=True) > stderr**2:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if lemma_bound(n, size, middle, simple=True) <= stderr**2 else (middle, high)
    return high
