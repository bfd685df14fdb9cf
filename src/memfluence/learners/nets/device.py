"""Which device torch trains on, with how many threads and which kernels. Imported only when a torch learner trains."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from memfluence.errors import LearnerError

__all__ = [
    "all_threads",
    "available_cores",
    "current_device",
    "default_generator",
    "device_name",
    "kernels",
    "no_synchronization",
    "one_thread",
    "torch_device",
]


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
    """What dropout draws from."""
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
    """Which kernels cuDNN may choose: those with the same bits every time, or the fastest it finds by trying."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, not deterministic
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
