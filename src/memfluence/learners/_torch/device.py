"""Which device torch trains on, and with how many threads. Imported only when a torch learner trains."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memfluence.errors import LearnerError

__all__ = ["device_name", "one_thread", "torch_device"]


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


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread within the block: sums split over threads would have other bits under another engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
