"""Ridge regression from masks to outcomes, with what every trial would be predicted to be without itself.

A trial's mask says which other examples its model had, and its distribution is the design's own: what a linear
function of the mask predicts may be taken off an outcome and its known expectation put back, without changing what is
estimated (`adjusted.py`). With x = z - keep, features F and a column for the intercept, H = X X' + penalty I:

    coefficients  b = X' inv(H) y            error of trial t predicted from all others  r_t = (inv(H) y)_t / inv(H)_tt
    any a = w' b is then  a - (w' X' inv(H))_t r_t  without trial t

so that leaving out each trial in turn costs no more than one fit. X is decomposed once for all penalties.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import Arms
from memfluence.estimators.counts import bits_at

__all__ = ["SHARES", "Masks", "Moments", "difference_variance", "moments"]

# The share of an outcome's variance that masks are taken to explain, each for one penalty; 0 is no adjustment.
SHARES = (0.0, 0.05, 0.15, 0.3, 0.5, 0.7)
_EXAMPLES_AT_ONCE = 2048  # columns of the masks; 64 MB in float64 with 4000 trials
_INTERCEPT = 100.0  # its prior variance, over that of all masks together: as good as no penalty


@dataclass(frozen=True)
class Moments:
    """What the design says of the masks: how often an example is kept, and given that another was kept or left out."""

    keep: float
    if_kept: float  # E[x_k | i kept], with x = z - keep
    if_left_out: float  # E[x_k | i left out]


def moments(arms: Arms, subset_size: int | None) -> Moments:
    """The moments of the designs `fixed`, `balanced` (each trial alone is a uniform subset) and `bernoulli`."""
    n = arms.n_train
    if not arms.shared or arms.keep is None or arms.in_trials.repeats > 1:
        raise InputError(
            "The adjusted estimator needs trials of the design fixed, balanced or bernoulli;"
            " leave out the estimator for these."
        )
    if subset_size is None or n == 1:
        return Moments(arms.keep, 0.0, 0.0)
    keep = subset_size / n
    return Moments(keep, (subset_size - 1) / (n - 1) - keep, subset_size / (n - 1) - keep)


class Masks:
    """The masks of some training examples (the features), decomposed."""

    def __init__(self, mask: np.ndarray, features: np.ndarray, keep: float) -> None:
        self._mask, self._features, self._keep = mask, features, keep
        trials, width = len(mask), len(features)
        self._size = max(1.0, width * keep * (1 - keep))  # of x'x for one trial
        self.total = np.zeros(trials)  # (trials,) sum of x over the features
        product = np.zeros((width, width) if width < trials else (trials, trials))
        parts = []
        for start in range(0, width, _EXAMPLES_AT_ONCE):
            x = self.centred(features[start : start + _EXAMPLES_AT_ONCE])  # (trials, some features)
            self.total += x.sum(axis=1)
            if width < trials:
                parts.append(x)
            else:
                product += x @ x.T
        one = np.full((trials, 1), np.sqrt(_INTERCEPT * self._size))
        if width < trials:
            x = np.concatenate([one, *parts], axis=1)  # (trials, width + 1)
            values, vectors = np.linalg.eigh(x.T @ x)
            used = values > values.max() * 1e-12
            self._values = values[used]  # (rank,)
            self._left = x @ (vectors[:, used] / np.sqrt(self._values))  # (trials, rank), orthonormal columns
        else:
            values, vectors = np.linalg.eigh(product + one @ one.T)
            used = values > values.max() * 1e-12
            self._values, self._left = values[used], vectors[:, used]

    def centred(self, examples: np.ndarray) -> np.ndarray:
        """x (trials, examples) float64."""
        return bits_at(self._mask, examples).astype(float) - self._keep

    def has(self, examples: np.ndarray) -> np.ndarray:
        """Which of the examples are features, (examples,) bool."""
        return np.isin(examples, self._features)

    @cached_property
    def _squares(self) -> np.ndarray:
        return np.asarray(self._left**2)

    def _penalty(self, share: float) -> float:
        return self._size * (1 / share - 1)

    def residuals(self, outcome: np.ndarray, share: float) -> np.ndarray:
        """Errors (trials, n) of each trial as predicted from all others; outcome (trials, n)."""
        kept = self._values / (self._values + self._penalty(share))  # (rank,)
        error = outcome - self._left @ (kept[:, None] * (self._left.T @ outcome))
        error /= 1 - (self._squares @ kept)[:, None]
        return np.asarray(error)

    def dual(self, weights: np.ndarray, share: float) -> np.ndarray:
        """inv(H) times weights (trials, n): how functions X w of the masks weigh each trial's outcome in X w' b."""
        penalty = self._penalty(share)
        kept = self._values / (self._values + penalty)
        solved = (weights - self._left @ (kept[:, None] * (self._left.T @ weights))) / penalty
        return np.asarray(solved)

    def intercept(self, share: float) -> np.ndarray:
        """The weights (trials,) of outcomes in the intercept."""
        return self.dual(np.full((len(self.total), 1), _INTERCEPT * self._size), share)[:, 0]


def difference_variance(kept: np.ndarray, values: np.ndarray) -> np.ndarray:
    """s^2 / trials of each arm, added up, (examples, n); kept (trials, examples) of 0 and 1, values (trials, n)."""
    variance = np.zeros((kept.shape[1], values.shape[1]))
    for used in (kept, 1 - kept):
        count = used.sum(axis=0)[:, None]  # (examples, 1)
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN with one trial or none
            variance += (used.T @ values**2 / count - (used.T @ values / count) ** 2) / (count - 1)
    return np.maximum(variance, 0.0)
