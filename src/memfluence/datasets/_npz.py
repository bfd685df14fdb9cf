"""`npz:FILE`: arrays saved with `np.savez` or `np.savez_compressed`. Nothing in the file is ever unpickled."""

from pathlib import Path

from memfluence.datasets._dataset import Dataset, from_arrays
from memfluence.datasets._files import require_file
from memfluence.errors import DatasetError
from memfluence.npzfiles import open_npz

__all__ = ["load_npz"]

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path: Path, name: str) -> Dataset:
    """The arrays x_train, y_train, x_test and y_test of the file."""
    with open_npz(require_file(path, name), DatasetError, name) as file:
        for key in _KEYS:
            if key not in file.names:
                raise DatasetError(
                    f"{name}: the file has no array {key!r}; it must hold {', '.join(_KEYS)}, and holds {file.listing}."
                )
        x_train, y_train, x_test, y_test = (file.read(key) for key in _KEYS)
    return from_arrays(x_train, y_train, x_test, y_test, name=name)
