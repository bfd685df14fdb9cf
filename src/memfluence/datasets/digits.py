"""`digits`: scikit-learn's 1797 handwritten digits of 8 x 8 pixels, split once and for ever.

600 examples train and 1197 test: few enough training examples that a network memorizes some of them. Each class
is split in proportion. The split is drawn from raw random bits, so no version of NumPy or scikit-learn changes it.
"""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.seeding import generator, random_subset

_N_TRAIN = 600


def load_digits(name: str) -> Dataset:
    """The digits as (n, 8, 8) uint8 in 0..16; ids are positions in scikit-learn's order, which each split keeps."""
    images, labels = _read()
    train = _stratified(labels, _N_TRAIN)  # (1797,) bool
    return from_arrays(
        images[train],
        labels[train],
        images[~train],
        labels[~train],
        name=name,
        value_range=(0, 16),
        train_ids=np.flatnonzero(train).tolist(),
        test_ids=np.flatnonzero(~train).tolist(),
    )


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8) uint8 and labels (1797,), from scikit-learn's own file: importing it takes a second."""
    found = importlib.util.find_spec("sklearn")
    for folder in (found.submodule_search_locations or []) if found else []:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                table = np.loadtxt(lines, delimiter=",").astype(np.uint8)  # (1797, 65)
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as from_sklearn  # wherever this version keeps it

    source = from_sklearn()
    return source.images.astype(np.uint8), source.target.astype(np.int64)


def _stratified(labels: np.ndarray, size: int) -> np.ndarray:
    """A subset of `size` examples as a mask (n,), with each class in proportion (largest remainders)."""
    counts = np.bincount(labels)  # (classes,)
    sizes, remainders = np.divmod(counts * size, len(labels))
    sizes[np.argsort(-remainders, kind="stable")[: size - int(sizes.sum())]] += 1
    mask = np.zeros(len(labels), dtype=bool)
    for label in range(len(counts)):
        members = np.flatnonzero(labels == label)
        mask[members] = random_subset(generator(0, "data", label), len(members), int(sizes[label]))
    return mask
