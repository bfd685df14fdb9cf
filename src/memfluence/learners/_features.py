"""Numeric inputs as torch tensors, scaled without looking at an example that a model leaves out.

Where the dataset knows the range of its values (an image's 0 to 255), all inputs are mapped from it to [0, 1] once. Elsewhere
each model subtracts the mean of its own kept examples, feature by feature, and divides by their standard deviation (by 1 where
that is 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError

__all__ = ["Features", "Scaling", "load_features"]

_DENSE_BYTES = 2**30  # a sparse matrix that needs more than this as an array is refused
_INSTEAD = "use a scikit-learn pipeline that turns them into numbers (`--learner file.py:pipeline`)"


@dataclass(frozen=True)
class Scaling:
    """Each model's own shift and scale; None where the inputs are scaled already."""

    shift: torch.Tensor  # (models, 1, n_features)
    scale: torch.Tensor  # (models, 1, n_features)

    def apply(self, batch: torch.Tensor) -> torch.Tensor:
        """Scale a batch (models, width, n_features) in place, the first models alone if it has fewer; float32."""
        models = len(batch)
        return batch.sub_(self.shift[:models]).mul_(self.scale[:models]).float()

    def apply_one(self, model: int, rows: torch.Tensor) -> torch.Tensor:
        """Rows (rows, n_features) as one model sees them, float32."""
        return rows.sub(self.shift[model]).mul_(self.scale[model]).float()


@dataclass(frozen=True)
class Features:
    """All inputs on one device, and whether they still have to be scaled model by model."""

    train: torch.Tensor  # (n_train, n_features)
    test: torch.Tensor  # (n_test, n_features)
    scaled: bool

    def scaling(self, kept: Sequence[np.ndarray]) -> Scaling | None:
        """The scaling of models that kept these rows, from these rows alone."""
        if self.scaled:
            return None
        shifts, scales = [], []
        for rows in kept:
            own = self.train[torch.from_numpy(rows).to(self.train.device)].double()  # (subset_size, n_features)
            deviation = own.std(dim=0, correction=0)
            shifts.append(own.mean(dim=0))
            scales.append(1 / torch.where(deviation > 0, deviation, 1))
        as_rows = [torch.stack(values)[:, None].to(self.train.dtype) for values in (shifts, scales)]
        return Scaling(*as_rows)


def load_features(dataset: Dataset, device: torch.device) -> Features:
    """The dataset's inputs, flattened to one row per example; refuses what is not numbers."""
    splits = [_as_rows(dataset.x_train), _as_rows(dataset.x_test)]
    scaled = dataset.value_range is not None
    # Inputs that float32 cannot hold stay float64 until the model's own mean is off, so that a time stamp keeps its seconds.
    exact = scaled or all(np.can_cast(rows.dtype, np.float32) for rows in splits)
    tensors = []
    for rows in splits:
        # Copied into torch's own memory: its alignment is always the same, and the bits of a product can depend on that.
        tensor = torch.empty(rows.shape, dtype=torch.float32 if exact else torch.float64)
        target = tensor.numpy()
        if dataset.value_range is None:
            target[...] = rows
        else:
            low, high = dataset.value_range
            np.subtract(rows, low, out=target, casting="unsafe")
            target /= high - low
        tensors.append(tensor.to(device))
    return Features(tensors[0], tensors[1], scaled)


def _as_rows(inputs: Any) -> np.ndarray:
    """Inputs as an array (n, n_features) of booleans, integers or floats."""
    if hasattr(inputs, "tocsr"):
        if int(np.prod(inputs.shape)) * 8 > _DENSE_BYTES:
            raise LearnerError(
                f"mlp needs dense inputs and a sparse matrix of the shape {tuple(inputs.shape)} is too large to expand;"
                " use a scikit-learn estimator, many of which take sparse matrices as they are."
            )
        inputs = inputs.toarray()
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu().numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype == object and hasattr(inputs, "iloc"):  # a table of numbers and booleans
        try:
            array = inputs.to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            pass
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        kind = type(inputs[0]).__name__ if isinstance(inputs, list) and inputs else str(array.dtype)
        raise LearnerError(f"mlp needs inputs that are arrays of numbers; got {kind}; {_INSTEAD}.")
    return array.reshape(len(array), -1)  # (n, n_features)
