"""Pillow images of one dataset as one array of bytes per split."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

__all__ = ["Picture", "stack_pictures"]

_GREY = {"1", "L", "LA", "La"}
_DEEP = ("I", "F")  # 16-bit, 32-bit and float pixels: no rule says what their black and white are


@dataclass(frozen=True)
class Picture:
    """An image that can be opened as a Pillow image, and what to call it in a message."""

    where: str
    open: Callable[[], AbstractContextManager[Any]]


def stack_pictures(splits: Mapping[str, Sequence[Picture]], size: int | None, name: str) -> dict[str, np.ndarray]:
    """Each split as (n, h, w) uint8 if every image is grey, else (n, h, w, 3); transparency is dropped.

    All images must have one size, unless `size` is given: then the shorter side is scaled to it and the middle square
    is cut out. Headers are read first, so that a disagreement is found before anything is decoded.
    """
    grey = True
    first: tuple[str, tuple[int, int]] | None = None
    for picture in (picture for pictures in splits.values() for picture in pictures):
        mode, extent = _opened(picture, name, lambda image: (image.mode, image.size))
        if mode.startswith(_DEEP):
            raise DatasetError(
                f"{name}: {picture.where} has pixels of more than 8 bits (mode {mode}); save the images with 8 bits."
            )
        grey = grey and mode in _GREY
        first = first or (picture.where, extent)
        if size is None and extent != first[1]:
            raise DatasetError(
                f"{name}: {picture.where} is {extent[0]} x {extent[1]} but {first[0]} is {first[1][0]} x"
                f" {first[1][1]} pixels; resize them to one size, or add ?size=64 to the dataset's name"
                " to scale and crop all of them to 64 x 64."
            )
    width, height = (size, size) if size is not None else first[1] if first else (0, 0)
    arrays = {}
    for split, pictures in splits.items():
        array = np.empty((len(pictures), height, width) + (() if grey else (3,)), dtype=np.uint8)
        for row, picture in enumerate(pictures):
            array[row] = _opened(picture, name, lambda image: _pixels(image, grey, size))
        arrays[split] = array
    return arrays


def _opened(picture: Picture, name: str, read: Callable[[Any], Any]) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with picture.open() as image:
                return read(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DatasetError(
            f"{name}: {picture.where} claims more pixels than an honest image has ({error});"
            " remove it or scale it down."
        ) from error
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged files
        raise DatasetError(
            f"{name}: {picture.where} cannot be decoded as an image ({error!s:.120}); replace or remove it."
        ) from error


def _pixels(image: Any, grey: bool, size: int | None) -> np.ndarray:
    from PIL import Image

    converted = image.convert("L" if grey else "RGB")
    if size is not None and converted.size != (size, size):
        width, height = converted.size
        shorter = min(width, height)
        left, top = (width - shorter) / 2, (height - shorter) / 2
        box = (left, top, left + shorter, top + shorter)  # cutting first is the same picture for less work
        converted = converted.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(converted)
