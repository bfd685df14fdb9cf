"""`cifar10:DIR` and `cifar100:DIR`: the official Python pickles, in the official order.

A pickle is a program that may name any function. Here it reaches only stand-ins, which note down the parts of an
array, so that nothing of the file is run; every other name is an error.
"""

import io
import math
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.folder import folder_with, require_file
from memfluence.errors import DatasetError

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
    "cifar-10-batches-py",
    tuple(f"data_batch_{k}" for k in range(1, 6)),
    *("test_batch", "batches.meta", "labels", "label_names"),
)
_CIFAR100 = _Layout("cifar-100-python", ("train",), "test", "meta", "fine_labels", "fine_label_names")


def load_cifar10(folder: Path, name: str) -> Dataset:
    """CIFAR-10 as (n, 32, 32, 3) uint8; `folder` is cifar-10-batches-py or its parent."""
    return _load(folder, name, _CIFAR10)


def load_cifar100(folder: Path, name: str) -> Dataset:
    """CIFAR-100 with its 100 fine labels, as (n, 32, 32, 3) uint8; `folder` is cifar-100-python or its parent."""
    return _load(folder, name, _CIFAR100)


def _load(folder: Path, name: str, layout: _Layout) -> Dataset:
    place = folder_with(layout.train, folder, (layout.folder,), name)
    batches = [_batch(place / file_name, layout.labels, name) for file_name in layout.train]
    x_test, y_test, test_ids = _batch(place / layout.test, layout.labels, name)
    meta = place / layout.meta
    class_names = _entry(_read(meta, name), layout.label_names, name)
    if not isinstance(class_names, list) or not all(isinstance(label, str) for label in class_names):
        raise DatasetError(f"{name}: {layout.label_names!r} in {meta} must be a list of names.")
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
    content = _read(path, name)
    labels = _entry(content, labels_key, f"{name}: {path}")
    if not isinstance(labels, list) or not set(map(type, labels)) <= {int}:
        raise DatasetError(f"{name}: {labels_key!r} in {path} must be a list of integers; fetch the file again.")
    data = _entry(content, "data", f"{name}: {path}")
    pixels = data.unsigned_bytes() if isinstance(data, _Array) else None
    if pixels is None:
        raise DatasetError(
            f"{name}: 'data' in {path} must be an array of unsigned bytes, all of them there; fetch the file again."
        )
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


class _Array:
    """Stands in for NumPy's array and for what makes one: notes down its parts."""

    def __init__(self, *_: Any) -> None:
        self._state: Any = None

    def __setstate__(self, state: Any) -> None:
        self._state = state

    def unsigned_bytes(self) -> np.ndarray | None:
        """The array, if it is one of unsigned bytes whose shape and content agree."""
        if not isinstance(self._state, tuple) or len(self._state) != 5:
            return None
        _, shape, dtype, fortran_order, content = self._state
        if isinstance(content, str):  # what Python 2 wrote
            content = content.encode("latin1")
        is_plain = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
        if not is_plain or not isinstance(dtype, _Dtype) or dtype.code not in ("u1", "|u1"):
            return None
        if not isinstance(content, bytes) or math.prod(shape) != len(content):
            return None
        return np.ndarray(shape, np.uint8, buffer=content, order="F" if fortran_order is True else "C")


class _Dtype:
    """Stands in for NumPy's dtype."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and alignment, which bytes do not have


class _Encoded:
    """Stands in for `_codecs.encode`, with which Python 3 writes bytes in old protocols."""

    def __new__(cls, text: str, encoding: str) -> Any:
        return text.encode({"latin1": "latin1"}[encoding])

    def __setstate__(self, state: Any) -> None:
        pass


class _Unpickler(pickle._Unpickler):  # in Python: the compiled one allocates whatever a length in the file asks for
    where = ""
    stand_ins = (
        {("numpy", "dtype"): _Dtype, ("_codecs", "encode"): _Encoded, ("numpy", "ndarray"): _Array}
        | {(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")}
    )  # fmt: skip
    # Without the one instruction that makes room for whatever its length asks for.
    dispatch: ClassVar = {code: do for code, do in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in self.stand_ins:
            raise DatasetError(
                f"{self.where} asks for {f'{module}.{name}'!r:.120}, which data do not need and which could run code;"
                " it was not loaded: fetch the official file."
            )
        return self.stand_ins[module, name]


def _read(path: Path, name: str) -> Any:
    """The content of a pickle of dicts, lists, strings, numbers and arrays, the arrays as `_Array`."""
    try:
        unpickler = _Unpickler(io.BytesIO(require_file(path, name).read_bytes()), encoding="latin1")
        unpickler.where = f"{name}: {path}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of odd escapes in texts
            return unpickler.load()
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(f"{name}: {path} cannot be read ({error}).") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetError(f"{name}: {path} is not a whole pickle ({error!s:.120}); fetch the file again.") from error
