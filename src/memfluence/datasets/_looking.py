"""Inputs one by one, for people to look at: a picture, or names and values."""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["features", "one_input"]


def one_input(inputs: Any, row: int) -> Any:
    """One input: an array where there is any way to have one."""
    if hasattr(inputs, "iloc"):  # pandas
        return inputs.iloc[row]
    if hasattr(inputs, "tocsr"):  # SciPy, whose rows come in several shapes
        return inputs[[row]].tocoo()
    one = inputs[row]
    return one if isinstance(one, str) or not hasattr(one, "shape") else np.asarray(one)


def features(one: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, in order; of a sparse row those that are not zero."""
    if hasattr(one, "tocoo"):
        yield from ((f"feature {column}", number) for column, number in zip(one.col, one.data))
    elif hasattr(one, "items"):  # a row of a table, a dict
        yield from ((str(name), value) for name, value in one.items())
    elif isinstance(one, np.ndarray) and one.ndim:
        yield from ((f"feature {column}", number) for column, number in enumerate(one.flat))
    else:
        yield "value", one
