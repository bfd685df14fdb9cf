"""Image files as arrays of bytes: all of a dataset at once, or each when it is asked for (`LazyImages`)."""

import io
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.files import Files
from memfluence.errors import DatasetError, one_line
from memfluence.npzfiles import DEFLATE_LIMIT

__all__ = ["LazyImages", "Picture", "lazy_dataset", "open_picture", "square_picture", "stack_pictures"]

# What Pillow may decode, whatever a file is called: it would hand other formats (EPS) to programs of the machine.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
_SILENT = logging.NullHandler()
_PIXELS_PER_BYTE = 8 * DEFLATE_LIMIT  # of a PNG or TIFF of one bit per pixel; other formats compress less

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
        _check_depth(mode, picture.where, name)
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


def square_picture(path: str, size: int, shorter: int, name: str) -> np.ndarray:
    """The middle (size, size, 3) uint8 of an image file whose shorter side is scaled to `shorter`, in RGB.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that is no smaller than asked for, which is several times
    faster.
    """

    def read(image: Any) -> tuple[str, np.ndarray | None]:
        if image.mode.startswith(_DEEP):
            return image.mode, None
        image.draft("RGB", (shorter, shorter))
        return image.mode, _scaled(image.convert("RGB"), size, shorter)

    mode, pixels = _opened(Picture(path, partial(open_picture, path)), name, read)
    _check_depth(mode, path, name)
    return np.asarray(pixels)


def open_picture(path: str) -> Any:
    """An image file, if it is of a format that is decoded here and could hold as many pixels as it claims."""
    from PIL import Image, UnidentifiedImageError

    logging.getLogger("PIL").addHandler(_SILENT)  # what it would say on stderr, it also raises
    with open(path, "rb") as file:  # noqa: PTH123 a Path for each of a million is slow
        content = file.read()  # Pillow would allocate whatever length a file claims, but not beyond what is in memory
    try:
        image = Image.open(io.BytesIO(content), formats=_FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is none of {', '.join(_FORMATS)}") from None
    if image.width * image.height > _PIXELS_PER_BYTE * len(content):
        raise ValueError(f"it claims {image.width} x {image.height} pixels in {len(content)} bytes")
    return image


def _check_depth(mode: str, where: str, name: str) -> None:
    if mode.startswith(_DEEP):
        raise DatasetError(
            f"{name}: {where} has pixels of more than 8 bits (mode {mode}); save the images with 8 bits."
        )


def _opened(picture: Picture, name: str, read: Callable[[Any], Any]) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Complaints about metadata, which some of ImageNet's files give rise to, are not shown.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with picture.open() as image:
                return read(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DatasetError(
            f"{name}: {picture.where} claims more pixels than an honest image has ({error});"
            " remove it or scale it down."
        ) from error
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged files
        says = one_line(str(error)) or type(error).__name__
        raise DatasetError(
            f"{name}: {picture.where} cannot be decoded as an image ({says:.120}); replace or remove it."
        ) from error


def _pixels(image: Any, grey: bool, size: int | None) -> np.ndarray:
    converted = image.convert("L" if grey else "RGB")
    return np.asarray(converted) if size is None else _scaled(converted, size, size)


def _scaled(image: Any, size: int, shorter: int) -> np.ndarray:
    """The middle (size, size) of an image whose shorter side is scaled to `shorter`."""
    from PIL import Image

    width, height = image.size
    if (width, height) == (size, size) and size == shorter:
        return np.asarray(image)
    cut = min(width, height) * size / shorter
    left, top = (width - cut) / 2, (height - cut) / 2
    box = (left, top, left + cut, top + cut)  # cutting first is the same picture for less work
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


class LazyImages:
    """A sequence of pictures (size, size, 3) uint8, read like an array (n, size, size, 3) along its first axis.

    The shorter side is scaled to `shorter` pixels and the middle square of `size` is cut out; grey pictures, CMYK and
    palettes become RGB, and transparency is dropped. JPEGs are decoded at 1/2, 1/4 or 1/8 of their size where
    that is no smaller than what is asked for. A file that cannot be decoded is a `DatasetError` with its path.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(self, files: Files, size: int, shorter: int, name: str) -> None:
        self._files, self._size, self._shorter, self._name = files, size, shorter, name

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self._files), self._size, self._size, 3

    @property
    def nbytes(self) -> int:
        """The bytes that all of them take when they are decoded."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def fingerprinted(self) -> list[Any]:
        """A stand-in for the content, which would take hours to read: names and sizes of the files, without their
        folders, and how they are decoded.

        So a file that is replaced by another of the same name and the same number of bytes goes unnoticed, and
        so does another version of the decoder, whose pixels may differ by 1.
        """
        return ["files", self._size, self._shorter, self._files.names, self._files.sizes]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, rows: Any) -> np.ndarray:
        chosen = np.arange(len(self))[rows]  # NumPy's own rules for negative, boolean and wrong indices
        if chosen.ndim == 0:
            return square_picture(self._files.path(int(chosen)), self._size, self._shorter, self._name)
        images = np.empty((len(chosen), *self.shape[1:]), dtype=np.uint8)
        for place, row in enumerate(chosen.tolist()):
            images[place] = square_picture(self._files.path(row), self._size, self._shorter, self._name)
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.nbytes > memory:
            raise DatasetError(
                f"{self._name}: {len(self)} images take {self.nbytes / 1e9:.0f} GB decoded, more than this machine's"
                f" memory ({memory / 1e9:.0f} GB); use a network, which decodes as it trains, or a smaller ?size=..."
            )
        if copy is False:
            raise ValueError("files are decoded into new memory")
        return self[:].astype(dtype or np.uint8, copy=False)

    def copy(self) -> np.ndarray:
        """All of them in memory, for learners that take arrays."""
        return np.asarray(self)


def lazy_dataset(
    train: tuple[Files, np.ndarray],  # and the class of each, (n,) text
    test: tuple[Files, np.ndarray],
    name: str,
    *,
    size: int,
    shorter: int,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A dataset of files: inputs are `LazyImages`, ids are paths."""
    return from_arrays(
        LazyImages(train[0], size, shorter, name),
        train[1],
        LazyImages(test[0], size, shorter, name),
        test[1],
        name=name,
        class_names=class_names,
        value_range=(0, 255),
        train_ids=train[0],
        test_ids=test[0],
    )
