"""`cifar10:DIR` and `cifar100:DIR`: the official Python pickles, in the official order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.datasets._files import folder_with, require_file
from memfluence.datasets._unpickle import PickledArray, load_pickle
from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.errors import DatasetError

__all__ = ["load_cifar10", "load_cifar100"]

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
