"""From an estimator's and an outcome's name to the estimates.

Estimators: `plain` is Algorithm 1, `adjusted` the same less what the other examples' masks predict, `shrunk` (influence
of right and wrong alone) pulled towards 0. Outcomes: `correct`, a recorded `margin` or `logit`, `smoothed` (right and
wrong, smoothed by the recorded margin) or an array.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._estimates import Estimates
from memfluence.estimators.adjusted import adjusted_influence, adjusted_memorization
from memfluence.estimators.influence import influence
from memfluence.estimators.memorization import Memorization, memorization
from memfluence.estimators.memory import Memory
from memfluence.estimators.real import RealMemorization, real_influence, real_memorization, recorded_outcome
from memfluence.estimators.shrunk import shrunk_influence
from memfluence.estimators.smoothed import TEST_WIDTH, TRAIN_WIDTH, smoothed
from memfluence.records import Kind, Trials

if TYPE_CHECKING:
    from memfluence.store import TrialStore

__all__ = ["ESTIMATORS", "chosen_influence", "chosen_memorization"]

ESTIMATORS = ("plain", "adjusted", "shrunk")


def chosen_memorization(
    store: "TrialStore",
    trials: Trials,
    kinds: Sequence[Kind],
    labels: np.ndarray,  # (n_train,)
    keep: float | None,
    outcome: "str | np.ndarray",
    estimator: str,
    memory: str | int | Memory | None = None,
) -> Memorization | RealMemorization:
    _check(estimator, store)
    if estimator == "shrunk":
        raise InputError("The estimator 'shrunk' is for influence; choose plain or adjusted for memorization.")
    values = _values(store, trials, outcome, "train", memory)
    if estimator == "adjusted":
        return adjusted_memorization(trials, kinds, labels, keep, outcome=values, memory=memory)
    return memorization(trials, kinds, keep) if values is None else real_memorization(trials, kinds, values, keep)


def chosen_influence(
    store: "TrialStore",
    trials: Trials,
    kinds: Sequence[Kind],
    labels: tuple[np.ndarray, np.ndarray],  # (n_train,), (n_test,)
    keep: float | None,
    outcome: "str | np.ndarray",
    estimator: str,
    memory: str | int | Memory | None,
) -> Estimates:
    _check(estimator, store)
    values = _values(store, trials, outcome, "test", memory)
    if estimator == "shrunk":
        if values is not None:
            raise InputError("The estimator 'shrunk' is for the outcome 'correct'; leave one of them out.")
        return shrunk_influence(trials, kinds, *labels, keep, memory=memory)
    if estimator == "adjusted":
        return adjusted_influence(trials, kinds, *labels, keep, outcome=values, memory=memory)
    if values is None:
        return influence(trials, kinds, keep, memory=memory)
    return real_influence(trials, kinds, values, keep, memory=memory)


def _check(estimator: str, store: "TrialStore") -> None:
    if estimator not in ESTIMATORS:
        raise InputError(f"The 'estimator' must be one of {', '.join(ESTIMATORS)}. Got {estimator!r} instead.")
    if estimator == "adjusted" and "groups" in (store.info.plan or {}).get("options", {}):
        raise InputError(
            "The adjusted estimator needs examples that are kept independently of each other, but this run's are in"
            " groups; leave out the estimator."
        )


def _values(
    store: "TrialStore",
    trials: Trials,
    outcome: "str | np.ndarray",
    split: str,
    memory: str | int | Memory | None,
) -> np.ndarray | None:
    """Outcomes (trials, n), or None for right and wrong, which are counted as bits."""
    if not isinstance(outcome, str) or outcome not in ("correct", "smoothed"):
        return recorded_outcome(store, trials, outcome, split, memory)
    if outcome == "correct":
        return None
    margin = recorded_outcome(store, trials, "margin", split, memory)
    if split == "test":
        return smoothed(margin, TEST_WIDTH)
    left_out = np.unpackbits(~trials.mask, axis=1, count=trials.n_train, bitorder="little").astype(bool)
    return smoothed(margin, TRAIN_WIDTH, left_out)
