"""Images that stay in their files and are decoded when they are asked for: for data larger than memory."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.files import Files
from memfluence.datasets.images import square_picture
from memfluence.errors import DatasetError

__all__ = ["LazyImages", "lazy_dataset"]


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
        """What all of them take when they are decoded."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def fingerprinted(self) -> list[Any]:
        """What stands for the content, which would take hours to read: names and sizes of the files, without their
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
