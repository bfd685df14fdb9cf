"""`explicit`: masks given by the user, one row per trial; there are as many trials as rows."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.errors import DesignError
from memfluence.npzfiles import is_npy, open_npz, read_npy
from memfluence.records import Kind, Plan, Trial


@dataclass(frozen=True, eq=False)
class Explicit:
    plan: Plan  # options: {"masks": digest of the masks}
    masks: np.ndarray = field(repr=False)  # (limit, n_train) bool
    repeats: int = 1

    @property
    def limit(self) -> int:
        return len(self.masks)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        sizes = np.unique(self.masks.sum(axis=1))
        if len(sizes) == 1:
            return (Kind(float(sizes[0]) / self.plan.n_train, int(sizes[0])),)
        return (Kind(None, None),)

    def trial(self, number: int) -> Trial:
        if not 0 <= number < self.limit:
            raise DesignError(f"The explicit design has {self.limit} masks, so there is no trial {number}.")
        return Trial(number, 0, self.masks[number], self.plan.seed)


def checked_masks(masks: Any, n_train: int) -> np.ndarray:
    array = np.asarray(masks)
    if array.ndim != 2 or array.shape[1] != n_train or len(array) == 0:
        raise DesignError(
            f"Explicit masks must have the shape (trials, {n_train}), one column per training example."
            f" Got {array.shape} instead."
        )
    if array.dtype != bool:
        if array.dtype.kind not in "iu" or not np.isin(array, (0, 1)).all():
            raise DesignError(f"Explicit masks must hold booleans (or 0 and 1). Got {array.dtype} instead.")
        array = array.astype(bool)
    return array


def read_masks(path: Path) -> np.ndarray:
    """Masks from a .npy file, or from `mask` in a .npz file."""
    if not path.is_file():
        raise DesignError(f"There is no mask file {path}; give a .npy or a .npz with 'mask'.")
    if is_npy(path):
        return read_npy(path, DesignError)
    with open_npz(path, DesignError) as file:
        if "mask" not in file.names:
            raise DesignError(f"{path} has no array 'mask'; it holds {file.listing}.")
        return file.read("mask")
