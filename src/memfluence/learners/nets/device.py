"""The device that torch trains on, with how many threads and which kernels, and a dataset's inputs as tensors there.

Imported only when a torch learner trains.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.outcomes import UnusableReturnError, as_array

_ASKED_AT_ONCE = 500  # inputs of a user's model; about a batch of training: what could be trained can be asked


def torch_device(device: str) -> torch.device:
    """The device for "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1"."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in {"cpu", "cuda"}:
        raise LearnerError(f"the device must be auto, cpu, cuda or cuda:N; got {device!r}.")
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise LearnerError(f"torch sees no GPU here, so the device {device!r} cannot be used; use cpu or auto.")
        if chosen.index is not None and chosen.index >= count:
            raise LearnerError(
                f"torch sees {count} GPU(s) here, so there is no {device!r}; use cuda:0 to cuda:{count - 1}."
            )
    return chosen


def device_name(device: torch.device) -> str:
    """ "cpu", or the model of the GPU: same model, same bits."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """A GPU is torch's current one within the block: the one that kernels are launched on and steps captured on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def one_thread() -> AbstractContextManager[None]:
    """One torch thread within the block: sums split over threads would have other bits under another engine."""
    return _threads(1)


def all_threads() -> AbstractContextManager[None]:
    """A torch thread on every core within the block: for one long training beside which nothing else runs."""
    return _threads(available_cores())


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from."""
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


@contextmanager
def no_synchronization() -> Iterator[None]:
    """The host may not wait for the GPU within the block (by `.item()`, say): a capture would not allow it."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def kernels(deterministic: bool) -> Iterator[None]:
    """Within the block cuDNN chooses kernels with the same bits every time, or the fastest that it finds by trying."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, not deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refuse_missing(dataset: Dataset) -> None:
    if dataset.has_missing:
        raise LearnerError(
            f"{dataset.name}: some inputs are missing, and networks need all of them; use a scikit-learn pipeline with"
            " an imputer, or a classifier that takes them as they are (HistGradientBoostingClassifier)."
        )


class DeviceData:
    """Both splits and their targets as tensors on a device, put there once for all trials of a run.

    `targets` are codes of classes, numbers in float32, several labels as integers, or None where there are none.
    """

    def __init__(self, dataset: Dataset, device: str, learner: str) -> None:
        chosen = torch_device(device)
        self.device = str(chosen)
        self.device_name = device_name(chosen)
        self._learner = learner
        with self._enough_memory():
            self.train = _tensor(dataset.x_train, dataset.name).to(chosen)
            self.test = _tensor(dataset.x_test, dataset.name).to(chosen)
            codes = (dataset.y_train, dataset.y_test) if dataset.task == "classes" else None
            of_splits = codes or dataset.targets
            if dataset.task == "sequences":
                raise LearnerError(
                    f"{dataset.name}: sequences of labels are no tensor; leave out the parameter 'device' to get them."
                )
            self.targets: Sequence[torch.Tensor | None] = (None, None)
            if of_splits is not None:
                self.targets = [_tensor(one, dataset.name).to(chosen) for one in of_splits]

    def kept(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Copies of the inputs and targets of some training examples."""
        chosen, targets = torch.from_numpy(rows).to(self.device), self.targets[0]
        return self.train[chosen], None if targets is None else targets[chosen]

    @contextmanager
    def trial(self, seed: int) -> Iterator[None]:
        """Code of the user's within: torch's generators are its own, kernels those that give the same bits again."""
        devices = [] if self.device == "cpu" else [self.device]
        with self._enough_memory(), torch.random.fork_rng(devices=devices), kernels(deterministic=True):
            torch.manual_seed(seed)
            yield

    @torch.no_grad()
    def predicted(self, model: Callable[..., Any], inputs: torch.Tensor, *targets: torch.Tensor | None) -> np.ndarray:
        """What a module or function gives for all inputs, and their targets if these are given, in blocks."""
        device: str | torch.device = self.device
        if isinstance(model, nn.Module):
            model.eval()
            device = _where(model) or device
        blocks = []
        for start in range(0, len(inputs), _ASKED_AT_ONCE):
            some = slice(start, start + _ASKED_AT_ONCE)
            block = inputs[some].to(device, copy=True)
            own = (one if one is None else one[some].to(device, copy=True) for one in targets)
            blocks.append(_answers(_asked(model, block, *own), len(block)))
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
                f"{name}: a function that takes 'device' gets its inputs as a tensor of numbers, and these are none;"
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


def _asked(model: Callable[..., Any], block: torch.Tensor, *targets: torch.Tensor | None) -> Any:
    try:
        return model(block, *targets)
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
