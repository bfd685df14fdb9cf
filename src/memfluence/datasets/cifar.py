"""`cifar10:DIR` and `cifar100:DIR`: the official Python pickles, in the official order."""

import io
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.files import folder_with, require_file
from memfluence.errors import DatasetError

__all__ = ["PickledArray", "load_cifar10", "load_cifar100", "load_pickle"]

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Layout:
    folder: str  # as the official archive unpacks
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    label_names: str


_CIFAR10 = _Layout(
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{k}" for k in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    label_names="label_names",
)
_CIFAR100 = _Layout(
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    label_names="fine_label_names",
)


def load_cifar10(folder: Path, name: str) -> Dataset:
    """CIFAR-10 as (n, 32, 32, 3) uint8; `folder` is cifar-10-batches-py or the folder that holds it."""
    return _load(folder, name, _CIFAR10)


def load_cifar100(folder: Path, name: str) -> Dataset:
    """CIFAR-100 with its 100 fine labels, as (n, 32, 32, 3) uint8; `folder` is cifar-100-python or its parent."""
    return _load(folder, name, _CIFAR100)


def _load(folder: Path, name: str, layout: _Layout) -> Dataset:
    place = folder_with(layout.train, folder, (layout.folder,), name)
    batches = [_batch(place / file_name, layout.labels, name) for file_name in layout.train]
    x_test, y_test, test_ids = _batch(place / layout.test, layout.labels, name)
    class_names = _entry(load_pickle(require_file(place / layout.meta, name), name), layout.label_names, name)
    if not isinstance(class_names, list) or not all(isinstance(label, str) for label in class_names):
        raise DatasetError(f"{name}: {layout.label_names!r} in {place / layout.meta} must be a list of names.")
    labels = [label for batch in batches for label in batch[1]]
    for label in (min(labels + y_test, default=0), max(labels + y_test, default=0)):
        if not 0 <= label < len(class_names):
            raise DatasetError(
                f"{name}: a label is {label}, but {layout.meta} names the classes 0 to {len(class_names) - 1};"
                " fetch the files again."
            )
    ids = [batch[2] for batch in batches]
    return from_arrays(
        np.concatenate([batch[0] for batch in batches]),
        labels,
        x_test,
        y_test,
        name=name,
        class_names=class_names,
        value_range=(0, 255),
        train_ids=None if any(part is None for part in ids) else [key for part in ids for key in part or ()],
        test_ids=test_ids,
    )


def _batch(path: Path, labels_key: str, name: str) -> tuple[np.ndarray, list[int], Sequence[str] | None]:
    """One file's images (n, 32, 32, 3), labels and, if it has them, file names."""
    content = load_pickle(require_file(path, name), name)
    labels = _entry(content, labels_key, f"{name}: {path}")
    if not isinstance(labels, list) or not set(map(type, labels)) <= {int}:
        raise DatasetError(f"{name}: {labels_key!r} in {path} must be a list of integers; fetch the file again.")
    data = _entry(content, "data", f"{name}: {path}")
    if not isinstance(data, PickledArray):
        raise DatasetError(f"{name}: 'data' in {path} must be an array; fetch the file again.")
    pixels = data.to_bytes_array(f"{name}: 'data' in {path}")
    if pixels.shape != (len(labels), _PIXELS):
        raise DatasetError(
            f"{name}: 'data' in {path} has the shape {pixels.shape} for {len(labels)} labels;"
            f" expected ({len(labels)}, {_PIXELS}), so fetch the file again."
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # (n, 32, 32, 3)
    ids = content.get("filenames")
    if not isinstance(ids, list) or len(ids) != len(labels) or not set(map(type, ids)) <= {str}:
        ids = None
    return np.ascontiguousarray(images), labels, ids


def _entry(content: Any, key: str, where: str) -> Any:
    if not isinstance(content, dict) or key not in content:
        found = ", ".join(sorted(k for k in content if isinstance(k, str))) if isinstance(content, dict) else "no dict"
        raise DatasetError(f"{where}: no entry {key!r} (found: {found:.200}); give the official Python version.")
    return content[key]


_MOST_BYTES = 1 << 30  # the largest official file has 155 MB


class PickledArray:
    """An array as its pickle describes it: nothing is allocated or checked before `to_bytes_array`."""

    def __init__(self, *_: Any) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def to_bytes_array(self, where: str) -> np.ndarray:
        """The array of unsigned bytes, if its shape and its content agree."""
        state = self._state
        if not isinstance(state, tuple) or len(state) != 5:
            raise DatasetError(f"{where} is not an array as NumPy pickles it; fetch the file again.")
        _, shape, dtype, fortran_order, content = state
        if not isinstance(dtype, _PickledDtype) or dtype.code not in {"u1", "|u1"}:
            raise DatasetError(f"{where} must be an array of unsigned bytes; fetch the file again.")
        if isinstance(content, str):  # what Python 2 wrote
            content = content.encode("latin1")
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise DatasetError(f"{where} has an impossible shape; fetch the file again.")
        if not isinstance(content, bytes) or math.prod(shape) != len(content):
            held = len(content) if isinstance(content, bytes) else "no"
            raise DatasetError(f"{where} claims the shape {shape} but holds {held} bytes; fetch the file again.")
        return np.ndarray(shape, np.uint8, buffer=content, order="F" if fortran_order is True else "C")


class _PickledDtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment, which bytes do not have


class _Encoded:
    """`_codecs.encode`, with which Python 3 writes bytes in old protocols."""

    def __new__(cls, text: Any, encoding: Any = None) -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("only latin1 text can be encoded")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        pass


_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): _PickledDtype,
    ("_codecs", "encode"): _Encoded,
}


# Objects of classes, what only their owner could resolve, lists of bytes that are allocated before they are read, and
# texts of the first protocol, which are program text.
_REFUSED = (
    *(pickle.INST[0], pickle.OBJ[0], pickle.NEWOBJ[0], pickle.NEWOBJ_EX[0], pickle.PERSID[0], pickle.BINPERSID[0]),
    *(pickle.EXT1[0], pickle.EXT2[0], pickle.EXT4[0], pickle.BYTEARRAY8[0], pickle.NEXT_BUFFER[0]),
    *(pickle.READONLY_BUFFER[0], pickle.STRING[0]),
)


def _refuse(_: Any) -> None:
    raise pickle.UnpicklingError("it has instructions that data do not need")


class _PlainUnpickler(pickle._Unpickler):
    where = ""

    def find_class(self, module: str, name: str, /) -> Any:
        stand_in = _STAND_INS.get((module, name))
        if stand_in is None:
            raise DatasetError(
                f"{self.where} asks for {f'{module}.{name}'!r:.120}, which data do not need and which could run code;"
                " it was not loaded: fetch the official file."
            )
        return stand_in

    dispatch = pickle._Unpickler.dispatch | dict.fromkeys(_REFUSED, _refuse)


def load_pickle(path: Path, name: str) -> Any:
    """The content of a pickle of dicts, lists, strings, numbers and arrays, the arrays as `PickledArray`."""
    where = f"{name}: {path}"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DatasetError(f"{where} has more than {_MOST_BYTES} bytes; give the official Python version.")
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{where} cannot be read ({error}).") from error
    unpickler = _PlainUnpickler(io.BytesIO(content), encoding="latin1")
    unpickler.where = where
    try:
        return unpickler.load()
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetError(f"{where} is not a whole pickle ({error!s:.120}); fetch the file again.") from error
