"""C-scores beside memorization: does a run show what the paper says about the two?

Definition. The C-score of a training example (Jiang et al. 2021, arXiv 2002.03206) is how often models that did not see
it are right on it. The paper (Sec. 1.3) says that one minus the C-score is typically equal to memorization, since an
example that is hard to predict has to be memorized to be fitted. Compared are memorization and 1 - C-score over the
examples that have both: Pearson's and Spearman's correlation, and the mean absolute difference.

Ceiling. Memorization from few trials is noisy, so its correlation with anything is below 1. Two random halves of the
trials give estimates that correlate by r; those of all trials then have the reliability 2 r / (1 + r) (Spearman-Brown),
and correlate with a number without noise by at most its square root. r is the mean over a few splits. Exact for
Pearson's correlation, a good approximation for ranks.

Failure cases. Where the halves are too small to give two examples an estimate, or do not agree at all, there is no
ceiling: NaN. With few trials it is too low (by 0.025 with 20): how many trials left an example out differs from example
to example, and halving then more than doubles the noise. The C-scores' own noise is not known; it lowers what can be
reached further. Other networks and other sizes of the training set have other C-scores, which no ceiling knows.
"""

import numpy as np

from memfluence.estimators import Memory, memorization
from memfluence.findings.cross_fit import halves
from memfluence.runs import Run

SPLITS = 5


def correlations(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Pearson's and Spearman's over the examples that both know; NaN where they are fewer than two, or all alike."""
    from scipy.stats import spearmanr

    known = np.isfinite(first) & np.isfinite(second)
    a, b = first[known], second[known]
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return float("nan"), float("nan")
    return float(np.corrcoef(a, b)[0, 1]), float(spearmanr(a, b).statistic)


def ceilings(
    run: Run, known: np.ndarray, keep: float | None = None, memory: str | int | None = None
) -> tuple[float, float]:
    """The most that memorization can correlate with anything, by both; over the examples of `known` (n_train,) bool."""
    cap = run.memory if memory is None else Memory.of(memory)
    cap.check(run.trials.nbytes, "two halves of the trials", "fewer trials")
    found = []
    for number in range(SPLITS):
        parts = halves(run.trials, 0, number)
        found.append(correlations(*(memorization(part, run.info.kinds, keep).value[known] for part in parts)))
    pearson, spearman = (float(np.sqrt(2 * r / (1 + r))) if r > 0 else float("nan") for r in np.mean(found, axis=0))
    return pearson, spearman
