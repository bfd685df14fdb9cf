"""A dataset's inputs as torch tensors: scaled rows of numbers for perceptrons, and as they came for a user's function.

Perceptrons get numbers that are scaled without looking at an example that a model leaves out.

Where the dataset knows the range of its values (an image's 0 to 255), all inputs are mapped from it to [0, 1] once.
Elsewhere each model subtracts the mean of its own kept examples, feature by feature, and divides by their standard
deviation (by 1 where that is 0, up to rounding).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.nets.device import device_name, kernels, torch_device
from memfluence.learners.outcomes import UnusableReturnError, as_array

__all__ = ["DeviceData", "Features", "Scaling", "load_features", "refuse_missing"]

_DENSE_BYTES = 2**30  # a sparse matrix that needs more than this as an array is refused
_ASKED_AT_ONCE = 500  # inputs of a user's model; about a batch of training: what could be trained can be asked
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


class DeviceData:
    """Both splits and the training labels' codes as tensors on a device, put there once for all trials of a run."""

    def __init__(self, dataset: Dataset, device: str, learner: str) -> None:
        chosen = torch_device(device)
        self.device = str(chosen)
        self.device_name = device_name(chosen)
        self._learner = learner
        with self._enough_memory():
            self.train = _tensor(dataset.x_train, dataset.name).to(chosen)
            self.test = _tensor(dataset.x_test, dataset.name).to(chosen)
            self._labels = torch.tensor(dataset.y_train).to(chosen)  # (n_train,)

    def kept(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the inputs and codes of some training examples."""
        chosen = torch.from_numpy(rows).to(self.device)
        return self.train[chosen], self._labels[chosen]

    @contextmanager
    def trial(self, seed: int) -> Iterator[None]:
        """Code of the user's within: torch's generators are its own, kernels those that give the same bits again."""
        devices = [] if self.device == "cpu" else [self.device]
        with self._enough_memory(), torch.random.fork_rng(devices=devices), kernels(deterministic=True):
            torch.manual_seed(seed)
            yield

    @torch.no_grad()
    def predicted(self, model: Callable[[torch.Tensor], Any], inputs: torch.Tensor) -> np.ndarray:
        """What a module or function says of all inputs, which it is given in blocks."""
        device: str | torch.device = self.device
        if isinstance(model, nn.Module):
            model.eval()
            device = _where(model) or device
        blocks = []
        for start in range(0, len(inputs), _ASKED_AT_ONCE):
            block = inputs[start : start + _ASKED_AT_ONCE].to(device, copy=True)
            blocks.append(_answers(_asked(model, block), len(block)))
        if len({block.shape[1:] for block in blocks}) > 1:
            raise UnusableReturnError("the model returned another number of columns for some blocks of the inputs.")
        return np.concatenate(blocks)

    @contextmanager
    def _enough_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:  # here, because `one_by_one` would take it for the trial's own failure
            raise LearnerError(
                f"the GPU's memory does not hold the data and what {self._learner} needs;"
                " make its batches or its model smaller, or start fewer workers for a GPU."
            ) from error


def _tensor(inputs: Any, name: str) -> torch.Tensor:
    """Inputs as numbers that layers take: uint8 as it is, other integers as int64, the rest as float32."""
    if hasattr(inputs, "iloc"):  # a table
        inputs = inputs.to_numpy()
    if not isinstance(inputs, torch.Tensor):
        array = np.asarray(inputs) if hasattr(inputs, "dtype") else np.empty(0, dtype=object)
        if array.dtype.kind not in "biuf":
            raise LearnerError(
                f"{name}: a function that takes `device` gets its inputs as a tensor of numbers, and these are none;"
                " leave the parameter out to get them as they are."
            )
        kind = array.dtype if array.dtype == np.uint8 else np.int64 if array.dtype.kind in "biu" else np.float32
        return torch.tensor(np.ascontiguousarray(array, dtype=kind))  # a copy: the arrays may be read-only
    if inputs.dtype == torch.uint8:
        return inputs.clone()
    return inputs.to(torch.float32 if inputs.is_floating_point() else torch.int64, copy=True)


def _where(model: nn.Module) -> torch.device | None:
    """The one device of a module; None for one without parameters and buffers."""
    devices = {value.device for value in (*model.parameters(), *model.buffers())}
    if len(devices) > 1 or any(device.type == "meta" for device in devices):
        names = ", ".join(sorted(str(device) for device in devices))
        raise UnusableReturnError(f"the module lies on {names}; return it whole on one device, by model.to(device).")
    return next(iter(devices), None)


def _asked(model: Callable[[torch.Tensor], Any], block: torch.Tensor) -> Any:
    try:
        return model(block)
    except RuntimeError as error:
        if "dtype" not in str(error) and "type" not in str(error):
            raise
        raise UnusableReturnError(
            f"the model cannot be applied to {block.dtype} inputs, as they came; let it convert them itself, or return"
            f" a function that does, like lambda x: model(x.float() / 255) ({error})."
        ) from error


def _answers(returned: Any, n: int) -> np.ndarray:
    """Predictions (n,) or (n, columns) for a block of n inputs."""
    if isinstance(returned, tuple | dict) or not (hasattr(returned, "__len__") or hasattr(returned, "shape")):
        raise UnusableReturnError(
            f"the model returned an object of type {type(returned).__name__}; it must return logits (n, n_classes)"
            " alone."
        )
    array = as_array(returned)
    if array.ndim not in (1, 2) or len(array) != n:
        raise UnusableReturnError(
            f"the model returned the shape {array.shape} for {n} inputs; expected ({n}, n_classes) logits or ({n},)"
            " class codes."
        )
    return array
