"""`npz:FILE`: arrays saved with `np.savez` or `np.savez_compressed`. Nothing in the file is ever unpickled."""

from pathlib import Path

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.folder import require_file
from memfluence.errors import DatasetError
from memfluence.npzfiles import open_npz

_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path: Path, name: str, *, range: str | None = None) -> Dataset:
    """The arrays x_train, y_train, x_test and y_test of the file, and class_names where it has them.

    `range` is the value range of the inputs, where it is not the 0,255 of images in uint8.
    """
    value_range = None if range is None else _two_numbers(range, name)
    with open_npz(require_file(path, name), DatasetError, name) as file:
        for key in _KEYS:
            if key not in file.names:
                raise DatasetError(
                    f"{name}: the file has no array {key!r}; it must hold {', '.join(_KEYS)}, and holds {file.listing}."
                )
        x_train, y_train, x_test, y_test = (file.read(key) for key in _KEYS)
        class_names = file.read("class_names") if "class_names" in file.names else None
    if class_names is not None and (class_names.ndim != 1 or class_names.dtype.kind != "U"):
        raise DatasetError(
            f"{name}: class_names must be a flat array of texts; got {class_names.dtype} of {class_names.shape}."
        )
    names = None if class_names is None else class_names.tolist()
    return from_arrays(x_train, y_train, x_test, y_test, name=name, class_names=names, value_range=value_range)


def _two_numbers(text: str, name: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise DatasetError(
            f"{name}: the option 'range' must be the lowest and the highest value, as 0,16; got {text!r}."
        ) from None
    return low, high
