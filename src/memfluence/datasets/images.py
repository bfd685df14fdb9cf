"""Images: files as arrays of bytes, all at once or each when it is asked for; inputs as people see them."""

import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.errors import DatasetError, one_line

# What Pillow may decode, whatever a file is called: it would hand other formats (EPS) to programs of the machine.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
_SILENT = logging.NullHandler()

_GREY = {"1", "L", "LA", "La"}
_DEEP = ("I", "F")  # 16-bit, 32-bit and float pixels: no rule says what their black and white are
_CHANNELS = (1, 3)
_USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))


@dataclass(frozen=True, eq=False)
class Files(Sequence[str]):
    """Files within one folder. As a sequence: their paths there, like "train/cat/1.png"."""

    root: Path
    folders: tuple[str, ...]  # within the root: "train/cat"
    folder: np.ndarray  # (n,) which of the folders
    names: np.ndarray  # (n,) bytes, as the file system has them
    sizes: np.ndarray  # (n,) int64, in bytes

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        return f"{self.folders[self.folder[row]]}/{os.fsdecode(self.names[row])}"

    def path(self, row: int) -> str:
        return str(self.root / self[row])


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
    """An image file, if it is of a format that is decoded here."""
    from PIL import Image, UnidentifiedImageError

    logging.getLogger("PIL").addHandler(_SILENT)  # what it would say on stderr, it also raises
    with open(path, "rb") as file:  # noqa: PTH123 a Path for each of a million is slow
        content = file.read()  # Pillow would allocate whatever length a file claims, but not beyond what is in memory
    try:
        image = Image.open(io.BytesIO(content), formats=_FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"it is none of {', '.join(_FORMATS)}") from None
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
