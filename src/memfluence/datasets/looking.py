"""Inputs for people to look at: pictures, or names and values."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from memfluence.datasets.images import LazyImages

__all__ = ["features", "one_input", "picture_range", "to_images"]

_CHANNELS = (1, 3)
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))


def picture_range(inputs: Any, value_range: tuple[float, float] | None) -> tuple[float, float] | None:
    """The values to show as black and as white: the value range, or a usual one that holds all inputs.

    Inputs that use less than a quarter of that range (digits in 0..16 of 0..255) would all look alike: they are shown
    between their lowest and their highest. Only for people: a learner must not look at examples that it does not keep.
    """
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind not in "buif" or inputs.ndim not in (3, 4):
        return value_range
    low, high = (float(inputs.min()), float(inputs.max())) if inputs.size else (0.0, 0.0)
    fitting = [(black, white) for black, white in _USUAL_RANGES if black <= low and high <= white]
    for black, white in [value_range] if value_range else fitting:
        if high == low or high - low >= (white - black) / 4:
            return black, white
    return (low, high) if high > low else (low, low + 1.0)


def to_images(
    inputs: Any, value_range: tuple[float, float] | None, rows: np.ndarray | slice | None = None
) -> np.ndarray | None:
    """The inputs as (n, h, w) or (n, h, w, 3) uint8, or None where they are not images.

    Images are arrays (n, h, w), (n, h, w, c) or (n, c, h, w) with c = 1 or 3, in numbers whose `value_range` is
    known (for uint8 it is 0..255 unless given). With `rows` only those are converted.
    """
    if isinstance(inputs, LazyImages):
        inputs, rows = inputs[slice(None) if rows is None else rows], None
    if not isinstance(inputs, np.ndarray) or inputs.dtype.kind not in "buif" or inputs.ndim not in (3, 4):
        return None
    if value_range is None:
        if inputs.dtype != np.uint8:
            return None
        value_range = (0.0, 255.0)
    shape = inputs.shape[1:]
    channels_first = len(shape) == 3 and shape[2] not in _CHANNELS
    if channels_first and shape[0] not in _CHANNELS:
        return None
    height, width = shape[1:] if channels_first else shape[:2]
    if min(height, width) < 2:  # a signal rather than a picture
        return None
    images = inputs if rows is None else inputs[rows]  # (rows, ...)
    if channels_first:
        images = np.moveaxis(images, 1, -1)  # (rows, h, w, c)
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]  # (rows, h, w)
    return _eight_bits(images, value_range)


def _eight_bits(images: np.ndarray, value_range: tuple[float, float]) -> np.ndarray:
    low, high = value_range
    if images.dtype == np.uint8 and (low, high) == (0, 255):
        return np.ascontiguousarray(images)
    scaled = (images.astype(np.float32) - low) * (255.0 / (high - low))
    eight_bits: np.ndarray = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    return eight_bits


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
