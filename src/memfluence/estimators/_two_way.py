"""The mean, over test examples, of a number that was estimated from masks: how sure is it?

It varies with the masks, with the test examples, and with what is peculiar to each combination of the two. Let psi_gj
be the influence of mask g (of a block of balanced ones) on the number of test example j (the infinitesimal jackknife:
the number is, to first order, its expectation plus the mean of psi_gj over g). With G masks and J test examples

    V = sum_g mean_j(psi_gj)^2 / (G (G-1))  +  var_j / J  -  sum_gj (psi_gj - mean_j psi_gj)^2 / (G (G-1) J (J-1)).

Each of the first two terms contains the peculiar part, so it is subtracted once (Cameron, Gelbach and Miller 2011).
Resampling masks and test examples at once would count it three times (Owen 2007): 1.2 to 1.6 times too wide here.
The interval takes Student's quantile with min(G, J) - 1 degrees of freedom.

Failure cases. Of a single test example the interval is about other masks alone. To first order: with few masks, or
where a number hangs on a handful of them, the first term is too small. Where nothing is in common, V errs upwards (by
up to a tenth in the standard error), since it is not let below its last term.
"""

from dataclasses import asdict, dataclass, field
from math import nan
from typing import Any

import numpy as np

__all__ = ["Mean", "Tally"]


@dataclass(frozen=True)
class Mean:
    """A mean over test examples with its standard error and 95% interval; NaN where none can say."""

    value: float
    stderr: float
    lower: float
    upper: float
    test_examples: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(eq=False)
class Tally:
    """What the mean of a number per test example and its variance need, gathered some test examples at a time."""

    cluster: np.ndarray  # (masks,) which masks are not independent
    values: list[np.ndarray] = field(default_factory=list)  # NaN where a test example does not count
    psi: np.ndarray | None = None  # (clusters,) sums over test examples
    psi_squared: float = 0.0

    def add(self, values: np.ndarray, psi: np.ndarray | None, counts: np.ndarray) -> None:
        """`values` (tests,) and the influence (masks, tests) of each mask on them; those that do not count are NaN."""
        values = np.where(counts, values, np.nan)
        self.values.append(values)
        if psi is not None:
            by_cluster = np.zeros((self.cluster.max() + 1, int(np.isfinite(values).sum())))
            np.add.at(by_cluster, self.cluster, psi[:, np.isfinite(values)])
            by_cluster *= len(by_cluster) / len(psi)  # the mean of all stays what it is
            self.psi = by_cluster.sum(axis=1) + (0.0 if self.psi is None else self.psi)
            self.psi_squared += float((by_cluster**2).sum())

    def mean(self) -> Mean:
        from scipy.stats import t as student

        values = np.concatenate(self.values)
        values = values[np.isfinite(values)]
        tests = len(values)
        if not tests:
            return Mean(nan, nan, nan, nan, 0)
        of_tests = float(values.var(ddof=1)) / tests if tests > 1 else nan
        variance, freedom = of_tests, tests - 1
        if self.psi is not None:
            clusters = len(self.psi)
            pairs = clusters * (clusters - 1) or nan  # of a single cluster nothing can be said
            of_masks = float(((self.psi / tests) ** 2).sum()) / pairs
            variance, freedom = of_masks, clusters - 1
            if tests > 1:
                peculiar = (self.psi_squared - float((self.psi**2).sum()) / tests) / (pairs * tests * (tests - 1))
                # It is there whatever masks and test examples have in common, so V is not below it.
                variance, freedom = max(peculiar, of_masks + of_tests - peculiar), min(freedom, tests - 1)
        value, error = float(values.mean()), float(np.sqrt(variance))
        reach = float(student.ppf(0.975, freedom)) * error if freedom > 0 else nan
        return Mean(value, error, value - reach, value + reach, tests)
