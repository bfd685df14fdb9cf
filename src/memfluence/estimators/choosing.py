"""Estimates by the names of an estimator and an outcome, and the parts of them that one call may ask for.

Estimators: `plain` is Algorithm 1, `adjusted` the same less what the other examples' masks predict. Outcomes:
`correct`, a recorded `margin` or `logit`, or an array.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._estimates import ClassBlock, Estimates, TopK, TopTests
from memfluence.estimators.adjusted import adjusted_influence, adjusted_memorization
from memfluence.estimators.influence import influence
from memfluence.estimators.memorization import Memorization, memorization
from memfluence.estimators.memory import Memory
from memfluence.estimators.real import RealMemorization, real_influence, real_memorization, recorded_outcome
from memfluence.records import Kind, Trials

if TYPE_CHECKING:
    from memfluence.store import TrialStore

__all__ = ["ESTIMATORS", "ask", "chosen_influence", "chosen_memorization"]

ESTIMATORS = ("plain", "adjusted")


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
    if estimator == "adjusted":
        return adjusted_influence(trials, kinds, *labels, keep, outcome=values, memory=memory)
    if values is None:
        return influence(trials, kinds, keep, memory=memory)
    return real_influence(trials, kinds, values, keep, memory=memory)


def _check(estimator: str, store: "TrialStore") -> None:
    if estimator == "shrunk":
        raise InputError(
            "The estimator 'shrunk' was removed, since its error on strong pairs is up to four times that of 'plain';"
            " choose 'adjusted'."
        )
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
    if isinstance(outcome, str) and outcome == "correct":
        return None
    return recorded_outcome(store, trials, outcome, split, memory)


def ask(
    estimates: Estimates,
    labels: tuple[np.ndarray, np.ndarray],  # (n_train,), (n_test,)
    *,
    train: Any,
    test: Any,
    same_class: bool,
    top_k: int | None,
    per: Literal["test", "train"],
    dtype: Any,
) -> np.ndarray | list[ClassBlock] | TopK | TopTests:
    """The matrix or a part of it, blocks by class, or the largest estimates; see `Run.influence`."""
    if per not in ("test", "train"):
        raise InputError(f"The 'per' parameter must be 'test' or 'train'. Got {per!r} instead.")
    if top_k is not None:
        if isinstance(top_k, bool) or not hasattr(top_k, "__index__") or top_k < 1:
            raise InputError(f"The 'top_k' parameter must be an integer >= 1. Got {top_k!r} instead.")
        if same_class or (per == "test" and train is not None):
            raise InputError("top_k looks at all training examples; leave out train and same_class.")
        if per == "train" and test is not None:
            raise InputError("top_k per training example looks at all test examples; leave out test.")
        return estimates.top_tests(int(top_k), train) if per == "train" else estimates.top_k(int(top_k), test)
    if same_class:
        if test is not None or train is not None:
            raise InputError("same_class gives the blocks of all classes; leave out train and test.")
        return estimates.all_class_blocks(*labels, dtype=dtype)
    return estimates.block(train, test, dtype=dtype)
