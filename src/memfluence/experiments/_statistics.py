"""Means with their spread, as every result gives them."""

from collections.abc import Sequence

import numpy as np

__all__ = ["BLOCKS", "difference", "jackknife", "models", "spread"]

BLOCKS = 10  # of trials, for a jackknife


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


def models(counts: Sequence[int]) -> str:
    """'20 models', or '3 to 5 models' where some are still missing."""
    least, most = min(counts), max(counts)
    return f"{most} models" if least == most else f"{least} to {most} models"


def jackknife(left_out: Sequence[float] | np.ndarray) -> float:
    """Standard error of a number, from what it is without each of the blocks of trials that it is made of."""
    values = np.asarray(left_out, dtype=np.float64)
    return float(np.sqrt((len(values) - 1) / len(values) * ((values - values.mean()) ** 2).sum()))
