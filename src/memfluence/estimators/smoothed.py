"""Right and wrong, smoothed by the margin: how nearly a model was right, in place of whether it was.

Definition. With u the margin (label's logit less the largest other; right where u > 0), P the normal distribution
function and p its density, the outcome is K(u / h) with K(v) = P(v) + v p(v) / 2, which is 0 far below zero, 1 far
above, and of the fourth order: the mean of K(u / h) is P[u > 0] but for a term in h**4 and the third derivative of the
margin's density at 0, provided h is small against the density's features.

Why. Whether a model is right says nothing of how near it was; a margin close to 0 would often have fallen on the other
side. Smoothing takes that part of the variance off. The bandwidth is

    h = width * (standard deviation of the example's margins; of a training example's, without it) * trials ** -1/5

so it vanishes as trials grow, and what is estimated tends to what Algorithm 1 estimates; at any one number of trials
the target differs by the bias that `docs/variance.md` measures. `real.py` does the rest: errors are Welch's.

Failure cases. Biased, most where the margin's distribution changes within h of 0. An example whose margins are all
alike has h = 0 and stays right or wrong. Needs margins (`--record margin`).
"""

import math

import numpy as np

__all__ = ["TEST_WIDTH", "TRAIN_WIDTH", "smoothed"]

# Chosen on digits: of 1, 1.3, 2 and 2.6 those with the least error at 250 trials on memorization and on strong pairs.
TRAIN_WIDTH, TEST_WIDTH = 1.0, 2.0
_TRIALS_AT_ONCE = 256


def smoothed(margin: np.ndarray, width: float, used: np.ndarray | None = None) -> np.ndarray:
    """Outcomes (trials, n) float32 from margins (trials, n); the spread of those `used` (all) gives the bandwidth."""
    found = np.empty(margin.shape, dtype=np.float32)
    if not margin.size:
        return found
    bandwidth = width * len(margin) ** -0.2 * _deviation(margin, used)  # (n,)
    for start in range(0, len(margin), _TRIALS_AT_ONCE):
        some = slice(start, start + _TRIALS_AT_ONCE)
        values = margin[some].astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.clip(np.where(bandwidth > 0, values / bandwidth, np.inf * np.sign(values)), -40, 40)
        found[some] = _distribution(scaled) + scaled * np.exp(-(scaled**2) / 2) / math.sqrt(8 * math.pi)
    return found


def _deviation(margin: np.ndarray, used: np.ndarray | None) -> np.ndarray:
    values = np.where(np.isfinite(margin), margin, 0).astype(float)
    weights = np.ones_like(values) if used is None else used.astype(float)
    with np.errstate(invalid="ignore"):
        mean = (values * weights).sum(axis=0) / weights.sum(axis=0)
        return np.asarray(np.sqrt(((values - mean) ** 2 * weights).sum(axis=0) / weights.sum(axis=0)))


def _distribution(values: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return np.asarray(ndtr(values))
