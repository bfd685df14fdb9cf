"""The run itself, as the paper describes its own: how many models, how accurate, how many examples they memorize.

Variance. The number of memorized examples has a jackknife's standard error over blocks of trials: how far it would move
with other trials. Estimates from fewer trials are noisier, so a count at a threshold moves more between blocks than it
would between runs: the error is rather too large (in 14 runs of a `longtail` world 1.8 times). It does not say how far
the count is off: noise in the estimates lifts some examples over the threshold and takes others below it, and with few
trials there are more of the first.
"""

import numpy as np

from memfluence.estimators import memorization
from memfluence.experiments._result import BLOCKS, Result, about, check_trials, jackknife, spread
from memfluence.runs import Run
from memfluence.store import unpack

__all__ = ["summarize"]


def summarize(run: Run, *, mem: float = 0.25, infl: float = 0.15) -> Result:
    """Trials, accuracies and memorized examples of a run with one keep fraction. `infl` is only noted."""
    import pandas as pd

    check_trials(run)
    trials, kinds = run.trials, run.info.kinds

    def memorized(which: np.ndarray) -> int:
        return int((memorization(trials.select(which), kinds).value >= mem).sum())

    blocks = trials.numbers // trials.cluster % BLOCKS
    numbers = {
        "mem": mem,
        "infl": infl,
        "keep": float(np.bitwise_count(trials.mask).sum() / (len(trials) * trials.n_train)),
        "trials": len(trials),
        "test_accuracy": spread(unpack(trials.test_correct, trials.n_test).mean(axis=1)),
        "memorized": memorized(blocks >= 0),
        "memorized_stderr": jackknife([memorized(blocks != block) for block in range(BLOCKS)]),
    }
    return Result("run", f"{about(run.info)}, {len(trials):,} models", numbers, pd.DataFrame(), {"mem": mem})
