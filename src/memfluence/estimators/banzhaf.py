"""Data Banzhaf values: what an example adds, on average, to a subset in which every other example is a coin toss.

Definition. For a utility U of subsets (here the mean outcome of the model trained on S over a test set),

    phi_i = 2**-(n-1) * sum over S without i of (U(S + i) - U(S)) = E[U(S) | i in S] - E[U(S) | i not in S]

with all 2**n subsets equally likely: the Bernoulli design with keep 0.5. It is influence at keep 0.5 on a whole test
set, so everything that holds for influence holds here; on one test example it is that influence.

Estimator. The mean of U over the trials that kept i minus that over the others ("maximum sample reuse", Wang and Jia
2023, Data Banzhaf, arXiv 2205.15466). Every trial serves every example. Given how often i was kept, the subsets on
each side are independent and uniform on their side, so the estimate is exactly unbiased wherever neither side is
empty.

Variance. Welch's, s_in**2 / trials_in + s_out**2 / trials_out, of the utilities of whole trials. Test examples share
their trial, so its mean over the test set is one observation, not n_test of them; adding up the errors of single test
examples as if they were independent would be wrong. For the same reason errors of two training examples are
correlated, since both come from the same trials: differences and sums of values need a bootstrap over trials.

Failure cases. NaN where an example was never kept or never left out, the error where that happened once. Other designs
have other targets: at keep p it is the weighted (p-)Banzhaf value, at fixed sizes neither.

Paper: the remark in Sec. 2 that for m = n/2 influence is close to "the Shapley value ... the expected marginal utility
relative to the random and uniform subset of all examples" describes this value. Shapley's weighs all sizes of subsets
alike (`estimators/shapley.py`), Banzhaf's all subsets, nearly all of which have about n/2 examples.
"""

from typing import Any

import numpy as np

from memfluence.estimators._values import checked_utility, sums_kept
from memfluence.estimators.intervals import Difference, normal_difference
from memfluence.records import Trials


def banzhaf_values(trials: Trials, utility: Any) -> Difference:
    """Banzhaf values from trials of the Bernoulli design with keep 0.5 and their utilities (trials,)."""
    worth = checked_utility(trials, utility)
    worth = worth - (worth.mean() if len(worth) else 0.0)  # differences stay, and rounding shrinks
    columns = np.stack([np.ones_like(worth), worth, worth * worth], axis=1)  # (trials, 3)
    kept = sums_kept(trials, columns).T  # (3, n_train)
    left_out = columns.sum(axis=0)[:, None] - kept
    means, variances = [], []
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty side has no mean, a single trial no variance
        for count, total, squares in (kept, left_out):
            means.append(total / count)
            variances.append(np.where(count > 1, (squares - total * total / count) / (count - 1) / count, np.nan))
    return normal_difference(means[0] - means[1], variances[0] + variances[1])
