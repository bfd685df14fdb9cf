"""Is an estimate at least a threshold? As the fractions say, whatever their rounding.

Definition. x/a - y/b >= T for counts x, a, y, b and a threshold T that was meant as a decimal number. In float64 an
estimate that equals T may lie a little below it: 12 of 20 less 9 of 20 is 0.15, and 0.6 - 0.45 is less than that.

Estimator. Estimates from T - 2**-50 on count. Two divisions, a subtraction and T itself are off by less than 2**-52 in
all, so what equals T is in; and what is not T differs from it by 1 / (a b q) or more, q being T's denominator, so what
lies below is out while a b q < 2**49: for 0.15, up to five million trials in each arm. Real-valued outcomes and files
are compared in the same way.
"""

from typing import Any

import numpy as np

__all__ = ["at_least", "lowest"]

ROUNDING = 2.0**-50


def lowest(threshold: Any) -> Any:
    """The least float64 that counts as the threshold (or as each of several)."""
    return threshold - ROUNDING


def at_least(values: Any, threshold: float) -> np.ndarray:
    """Which values reach the threshold; NaN never does. A file's float32 is compared with it in float32."""
    return np.asarray(values >= lowest(float(threshold)))
