"""`mnist:DIR`: the four IDX files of MNIST and its relatives (Fashion-MNIST, KMNIST), gzipped or not."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.folder import folder_with
from memfluence.errors import DatasetError

_UNSIGNED_BYTES = 0x08


def load_mnist(folder: Path, name: str) -> Dataset:
    """Images (n, h, w) uint8 and labels; both spellings, train-images-idx3-ubyte and train-images.idx3-ubyte."""
    place = folder_with(_spellings("train-images", 3), folder, ("raw", "MNIST/raw"), name)
    arrays = {
        (part, kind): _read(_find(place, f"{part}-{kind}", dimensions, name), dimensions, name)
        for part in ("train", "t10k")
        for kind, dimensions in (("images", 3), ("labels", 1))
    }
    return from_arrays(
        arrays["train", "images"],
        arrays["train", "labels"],
        arrays["t10k", "images"],
        arrays["t10k", "labels"],
        name=name,
        value_range=(0, 255),
    )


def _spellings(stem: str, dimensions: int) -> tuple[str, ...]:
    plain = (f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte")
    return plain + tuple(f"{file_name}.gz" for file_name in plain)


def _find(folder: Path, stem: str, dimensions: int, name: str) -> Path:
    spellings = _spellings(stem, dimensions)
    for file_name in spellings:
        if (folder / file_name).is_file():
            return folder / file_name
    raise DatasetError(f"{name}: {folder} holds no {spellings[0]} (or {', '.join(spellings[1:])}); add that file.")


def _read(path: Path, dimensions: int, name: str) -> np.ndarray:
    """The array behind an IDX header: two zero bytes, the type, the number of axes, then the size of each axis."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            header, content = stream.read(4 + 4 * dimensions), bytearray(stream.read())
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{name}: {path} cannot be read ({error}); fetch the file again.") from error
    if len(header) != 4 + 4 * dimensions or header[:4] != bytes((0, 0, _UNSIGNED_BYTES, dimensions)):
        raise DatasetError(
            f"{name}: {path} does not start as an IDX file of bytes with {dimensions} axes;"
            " fetch the file again, or rename it if it is another."
        )
    shape = tuple(int.from_bytes(header[at : at + 4], "big") for at in range(4, len(header), 4))
    if math.prod(shape) != len(content):
        raise DatasetError(
            f"{name}: the header of {path} claims {' x '.join(map(str, shape))} = {math.prod(shape)} bytes,"
            f" but the file holds {len(content)}; fetch the file again."
        )
    return np.ndarray(shape, np.uint8, buffer=content)
