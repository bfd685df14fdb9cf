"""What a caller may ask of estimates in one call, and which of the questions contradict each other."""

from typing import Any, Literal

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._estimates import ClassBlock, Estimates, TopK, TopTests

__all__ = ["ask"]


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
