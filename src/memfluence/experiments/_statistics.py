"""Means with their spread, as every result gives them."""

from collections.abc import Sequence

import numpy as np

__all__ = ["difference", "spread"]


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float | int]:
    """Mean, standard deviation of one value (n - 1), standard error of the mean, n; NaN where n is too small."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    sd = float(array.std(ddof=1)) if n > 1 else float("nan")
    return {"mean": float(array.mean()) if n else float("nan"), "sd": sd, "stderr": sd / np.sqrt(max(n, 1)), "n": n}


def difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> dict[str, float | int]:
    """Mean of the first minus mean of the second, of runs that are not paired.

    `sd` is that of the difference of one run of each side, `stderr` that of the difference of means (Welch's).
    """
    one, other = spread(first), spread(second)
    return {
        "mean": one["mean"] - other["mean"],
        "sd": float(np.hypot(one["sd"], other["sd"])),
        "stderr": float(np.hypot(one["stderr"], other["stderr"])),
        "n": min(int(one["n"]), int(other["n"])),
    }
