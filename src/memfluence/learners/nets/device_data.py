"""`DeviceData`: what a function that trains in torch is given, and how what it returns is asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._predictions import UnusableReturnError, as_array
from memfluence.learners.nets.device import device_name, kernels, torch_device

__all__ = ["DeviceData"]

_ASKED_AT_ONCE = 500  # about a batch of training: what could be trained can be asked


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
