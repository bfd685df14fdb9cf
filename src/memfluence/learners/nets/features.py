"""Numeric inputs as torch tensors, scaled without looking at an example that a model leaves out.

Where the dataset knows the range of its values (an image's 0 to 255), all inputs are mapped from it to [0, 1] once.
Elsewhere each model subtracts the mean of its own kept examples, feature by feature, and divides by their standard
deviation (by 1 where that is 0, up to rounding).
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError

__all__ = ["Features", "Scaling", "load_features", "refuse_missing"]

_DENSE_BYTES = 2**30  # a sparse matrix that needs more than this as an array is refused
_ROWS_AT_ONCE = 4096  # examples scored at once: bounds the activations, whatever the size of the dataset


@dataclass(frozen=True)
class Scaling:
    """Each model's own shift, in the precision of the inputs, and its factor."""

    shift: torch.Tensor  # (models, 1, n_features)
    factor: torch.Tensor  # (models, 1, n_features) float32


@dataclass(frozen=True)
class Features:
    """All inputs of a dataset on one device."""

    train: torch.Tensor  # (n_train, n_features)
    test: torch.Tensor  # (n_test, n_features)
    scaled: bool  # once for all models
    _spaces: dict[tuple[int, int], tuple[torch.Tensor, ...]] = field(default_factory=dict)  # memory of batches

    def scaling(self, kept: Sequence[np.ndarray]) -> Scaling | None:
        """The scaling of models that keep these rows, from these rows alone; None where inputs are scaled already."""
        if self.scaled:
            return None
        shifts, factors = [], []
        for rows in kept:
            own = self.train[torch.from_numpy(rows).to(self.train.device)].double()  # (subset_size, n_features)
            mean, deviation = own.mean(dim=0), own.std(dim=0, correction=0)  # (n_features,)
            rounding = len(own) * torch.finfo(own.dtype).eps * mean.abs()  # what a sum of equal numbers may be off by
            shifts.append(mean)
            factors.append(1 / torch.where(deviation > rounding, deviation, 1))
        shift, factor = torch.stack(shifts)[:, None], torch.stack(factors)[:, None]  # (models, 1, n_features)
        return Scaling(shift.to(self.train.dtype), factor.float())

    def batch(self, rows: torch.Tensor, models: int, scaling: Scaling | None) -> torch.Tensor:
        """Training inputs (models, width, n_features) float32 of the first models; valid until the next call."""
        key = (models, len(rows))
        if key not in self._spaces:  # made once: fresh arrays cost page faults
            flat = self.train.new_empty(len(rows), self.train.shape[1])
            raw = flat.view(models, -1, self.train.shape[1])
            self._spaces[key] = flat, raw, raw if scaling is None else raw.to(torch.float32)
        flat, raw, batch = self._spaces[key]
        torch.index_select(self.train, 0, rows, out=flat)
        if scaling is not None:
            torch.sub(raw, scaling.shift[:models], out=batch).mul_(scaling.factor[:models])
        return batch

    def blocks(self, inputs: torch.Tensor, model: int, scaling: Scaling | None) -> Iterator[torch.Tensor]:
        """All of a split as one model sees it, as blocks (rows, n_features) float32."""
        for start in range(0, len(inputs), _ROWS_AT_ONCE):
            block = inputs[start : start + _ROWS_AT_ONCE]
            yield block if scaling is None else (block - scaling.shift[model]).float().mul_(scaling.factor[model])


def load_features(dataset: Dataset, device: torch.device) -> Features:
    """The dataset's inputs, flattened to one row per example; refuses what is not numbers."""
    refuse_missing(dataset)
    splits = [_as_rows(dataset.x_train), _as_rows(dataset.x_test)]
    # Inputs that float32 cannot hold stay float64 until the model's own mean is off: a time stamp keeps its seconds.
    exact = dataset.value_range is not None or all(np.can_cast(rows.dtype, np.float32) for rows in splits)
    tensors = []
    for rows in splits:
        # Copied into torch's own memory, which is aligned the same way in every process: products' bits depend on it.
        tensor = torch.empty(rows.shape, dtype=torch.float32 if exact else torch.float64)
        values = tensor.numpy()  # (n, n_features)
        if dataset.value_range is None:
            values[...] = rows
        else:
            low, high = dataset.value_range
            np.subtract(rows, np.float64(low), out=values, casting="same_kind")  # bytes would overflow
            values /= (high - low) or 1.0
        tensors.append(tensor.to(device))
    return Features(tensors[0], tensors[1], scaled=dataset.value_range is not None)


def refuse_missing(dataset: Dataset) -> None:
    if dataset.has_missing:
        raise LearnerError(
            f"{dataset.name}: some inputs are missing, and networks need all of them; use a scikit-learn pipeline with"
            " an imputer, or a classifier that takes them as they are (HistGradientBoostingClassifier)."
        )


def _as_rows(inputs: Any) -> np.ndarray:
    """Inputs as an array (n, n_features) of booleans, integers or floats."""
    if hasattr(inputs, "tocsr"):
        if int(np.prod(inputs.shape)) * 8 > _DENSE_BYTES:
            raise LearnerError(
                f"mlp needs dense inputs, and a sparse matrix of the shape {tuple(inputs.shape)} is too large to"
                " expand; use a scikit-learn classifier, many of which take sparse matrices as they are."
            )
        inputs = inputs.toarray()
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu().numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype == object and hasattr(inputs, "iloc"):
        with contextlib.suppress(TypeError, ValueError):  # a table of numbers and booleans
            array = inputs.to_numpy(dtype=np.float64)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        kind = type(inputs[0]).__name__ if isinstance(inputs, list) and inputs else str(array.dtype)
        raise LearnerError(
            f"mlp needs inputs that are arrays of numbers, but these are of type {kind}; turn them into numbers, or use"
            " a scikit-learn pipeline that does (--learner file.py:pipeline)."
        )
    return array.reshape(len(array), -1)  # (n, n_features)
