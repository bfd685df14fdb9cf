"""Inputs as pictures of any size and mode: arrays of images, lists of arrays, Pillow's own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import LazyImages, to_images

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["are_pictures", "pictures"]


def are_pictures(inputs: Any, value_range: tuple[float, float] | None) -> bool:
    """Whether the inputs can be shown as pictures, judged by the first."""
    return pictures(inputs, value_range, [0])[0] is not None


def pictures(
    inputs: Any, value_range: tuple[float, float] | None, rows: Sequence[int] | np.ndarray
) -> "list[Image | None]":
    """Pictures in RGB or RGBA of some rows; None for an input that is none."""
    from PIL import Image

    if isinstance(inputs, LazyImages | np.ndarray):
        images = to_images(inputs, value_range, np.asarray(rows))
        if images is not None:
            return [Image.fromarray(image).convert("RGB") for image in images]
    if hasattr(inputs, "iloc") or hasattr(inputs, "tocsr"):  # tables and sparse matrices have rows, no pictures
        return [None] * len(rows)
    return [_picture(inputs[int(row)], value_range) for row in rows]


def _picture(one: Any, value_range: tuple[float, float] | None) -> "Image | None":
    from PIL import Image

    if isinstance(one, Image.Image):
        if one.mode.startswith(("I", "F")):  # 16 or 32 bits: between the darkest and the brightest
            numbers = np.asarray(one, np.float64)
            spread = float(np.ptp(numbers)) or 1.0
            return Image.fromarray(np.uint8((numbers - numbers.min()) * (255 / spread))).convert("RGB")
        return one.convert("RGBA" if one.mode in ("RGBA", "LA", "PA") or "transparency" in one.info else "RGB")
    if not isinstance(one, np.ndarray) or one.ndim not in (2, 3) or min(one.shape[:2]) < 1:
        return None
    if one.ndim == 3 and one.shape[2] in (2, 4) and one.dtype == np.uint8:  # grey or colour with transparency
        colour = np.repeat(one[..., :1], 3, axis=2) if one.shape[2] == 2 else one[..., :3]
        return Image.fromarray(np.concatenate([colour, one[..., -1:]], axis=2))
    image = to_images(one[None], value_range)
    return None if image is None else Image.fromarray(image[0]).convert("RGB")
