"""Images in files, decoded ahead by worker processes, in the order that is asked for, whatever the workers' number."""

import contextlib
import itertools
import os
import sys
from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from memfluence.datasets import LazyImages
from memfluence.errors import DatasetError

__all__ = ["decoded", "decoded_table"]

# Workers hand over pieces of batches, so that all of them work on the batch that is needed next. Two pieces a worker
# wait in shared memory, of which containers often have 64 MB.
_PIECE_BYTES = 1 << 20
# Torch's own choice for loaders on Linux. Said here because the processes that engines start would take "spawn", where
# every worker imports torch for seconds, and needs scripts with a guard.
_START = "fork" if sys.platform == "linux" else None


def decoded(
    images: LazyImages, wanted: Iterable[np.ndarray], workers: int, *, pinned_for: torch.device | None = None
) -> Generator[list[torch.Tensor], None, None]:
    """For each of the wanted rows (k,) the images there, (k, height, width, channels) uint8, in pieces along k.

    With `pinned_for`, a GPU, they come in memory that it can copy from while it computes.
    """
    at_once = max(1, _PIECE_BYTES // (images.nbytes // len(images)))
    theirs, ours = itertools.tee(wanted)
    pieces = (rows[start : start + at_once] for rows in theirs for start in range(0, len(rows), at_once))
    loader = DataLoader(
        _Pieces(images),
        batch_size=None,
        sampler=pieces,
        num_workers=workers,
        pin_memory=pinned_for is not None,
        multiprocessing_context=_START if workers else None,
        worker_init_fn=_set_apart,
        generator=torch.Generator(),  # or it would draw from the global one
    )
    with contextlib.nullcontext() if pinned_for is None else torch.cuda.device(pinned_for):
        arriving = iter(loader)
    try:
        for rows in ours:
            yield [_checked(next(arriving)) for _ in range(0, len(rows), at_once)]
    finally:
        if workers:  # end them now (torch has no public word for it): a traceback may keep this frame for a while
            arriving._shutdown_workers()  # type: ignore[attr-defined]


def decoded_table(images: LazyImages, workers: int, device: torch.device) -> torch.Tensor:
    """All images on the device, (n, height, width, channels) uint8."""
    table = torch.empty(images.shape, dtype=torch.uint8, device=device)
    start = 0
    for pieces in decoded(images, np.array_split(np.arange(len(images)), -(-len(images) // 4096)), workers):
        for piece in pieces:
            table[start : start + len(piece)] = piece
            start += len(piece)
    return table


class _Pieces(Dataset[Any]):
    def __init__(self, images: LazyImages) -> None:
        self._images = images

    def __getitem__(self, rows: Any) -> torch.Tensor | DatasetError:
        try:
            return torch.from_numpy(self._images[rows])
        except DatasetError as error:
            return error  # as a value: what a worker raises arrives with its traceback for a message


def _set_apart(_: int) -> None:
    """Out of the terminal's reach: a Ctrl-C is for the training, which may need one more batch before it stops."""
    os.setpgrp()


def _checked(piece: torch.Tensor | DatasetError) -> torch.Tensor:
    if isinstance(piece, DatasetError):
        raise piece
    return piece
