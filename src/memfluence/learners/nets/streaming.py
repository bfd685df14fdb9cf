"""`StreamedImages`: batches of images that are decoded while the model trains, for data that the device cannot hold.

Worker processes decode images ahead, in the order that is asked for, whatever the number of workers is.

A captured step reads its images at a fixed place. While it runs, workers decode the next batch and a stream of its own
copies that to a second place on the device; between two steps it is moved to the first, which takes microseconds.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.data

from memfluence.datasets import Dataset, LazyImages
from memfluence.errors import DatasetError, LearnerError
from memfluence.learners.nets.device import available_cores
from memfluence.learners.nets.images import (
    ImageData,
    ImageSource,
    Split,
    block_rows,
    channel_statistics,
    load_images,
    padded_images,
)
from memfluence.learners.network import ImageLoading
from memfluence.learners.recipes import Recipe

__all__ = ["StreamedImages", "decoded", "decoded_table", "image_source"]

# Workers hand over pieces of batches, so that all of them work on the batch that is needed next. Two pieces a worker
# wait in shared memory, of which containers often have 64 MB.
_PIECE_BYTES = 1 << 20
# Torch's own choice for loaders on Linux. Said here because the processes that engines start would take "spawn", where
# every worker imports torch for seconds, and needs scripts with a guard.
_START = "fork" if sys.platform == "linux" else None


def image_source(
    dataset: Dataset, recipe: Recipe, device: torch.device, *, batch: int, flat: bool, loading: ImageLoading
) -> ImageSource:
    """The dataset's images as a table on the device or as a stream of batches; the same bits either way.

    `flat` makes each image one pixel of all values, which needs a table.
    """
    train, test = dataset.x_train, dataset.x_test
    if not (isinstance(train, LazyImages) and isinstance(test, LazyImages)):
        if loading.images == "stream":
            raise LearnerError(f"{dataset.name} is in memory already; images=stream is for images in files.")
        return load_images(dataset, recipe, device, flat=flat)
    if loading.images == "stream" and flat:
        raise LearnerError(f"{dataset.name}: a linear model needs a table of all images; use --set images=table.")
    workers = loading.decode_workers if loading.decode_workers >= 0 else available_cores()
    if loading.images == "stream" or not (loading.images == "table" or flat or _fits(train, test, recipe, device)):
        return StreamedImages(train, test, dataset.y_train, recipe, device, batch=batch, workers=workers)
    tables = [decoded_table(images, workers, device) for images in (train, test)]
    if flat:
        tables = [table.reshape(len(table), 1, 1, -1) for table in tables]
    return ImageData(
        train=tables[0],
        padded=padded_images(tables[0], recipe.crop_padding, recipe.padding_mode),
        test=tables[1],
        labels=torch.from_numpy(dataset.y_train).to(device),
        value_range=dataset.value_range or (0.0, 255.0),
    )


def _fits(train: LazyImages, test: LazyImages, recipe: Recipe, device: torch.device) -> bool:
    """Whether a table of all images takes at most half of the device's free memory."""
    _, height, width, _ = train.shape
    wider, higher = width + 2 * recipe.crop_padding, height + 2 * recipe.crop_padding
    padded = train.nbytes * wider * higher // (width * height) if recipe.crop_padding else 0
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return train.nbytes + padded + test.nbytes <= free // 2


class StreamedImages:
    """Both splits in their files."""

    def __init__(
        self,
        train: LazyImages,
        test: LazyImages,
        labels: np.ndarray,  # (n_train,) class codes
        recipe: Recipe,
        device: torch.device,
        *,
        batch: int,
        workers: int,
    ) -> None:
        _, height, width, self.channels = train.shape
        self.size = (height, width)
        self.value_range = (0.0, 255.0)
        self.labels = torch.from_numpy(labels).to(device)
        self._splits = {"train": train, "test": test}
        self._padding = recipe.crop_padding, recipe.padding_mode
        self._device, self._workers = device, workers
        place = (max(batch, block_rows(train.shape)), *train.shape[1:])
        self._images = torch.zeros(place, dtype=torch.uint8, device=device)  # where steps read
        padded_images(self._images[:1], *self._padding)  # refuses what cannot be padded
        self._on_gpu = device.type == "cuda"
        if self._on_gpu:
            self._next = torch.zeros_like(self._images)
            self._copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._moved = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def count(self, split: Split) -> int:
        return len(self._splits[split])

    def steps(self, rows: Iterable[np.ndarray]) -> Iterator[int]:
        return self._placed("train", rows)

    def batch(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        own = torch.arange(len(rows), device=self._device)
        return padded_images(self._images[: len(rows)], *self._padding), own

    def blocks(self, split: Split, rows: np.ndarray | None = None) -> Iterator[torch.Tensor]:
        images = self._splits[split]
        rows = np.arange(len(images)) if rows is None else rows
        at_once = block_rows(images.shape)
        for width in self._placed(split, (rows[start : start + at_once] for start in range(0, len(rows), at_once))):
            yield self._images[:width]

    def some(self, rows: np.ndarray) -> torch.Tensor:
        return torch.cat([block.clone() for block in self.blocks("train", rows)])

    def statistics(self, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return channel_statistics(self.blocks("train", None if rows is None else rows.cpu().numpy()))

    def _placed(self, split: Split, wanted: Iterable[np.ndarray]) -> Iterator[int]:
        """Put the images at each of the wanted rows where steps read them; gives how many there are."""
        pinned_for = self._device if self._on_gpu else None
        stream = decoded(self._splits[split], wanted, self._workers, pinned_for=pinned_for)
        with contextlib.closing(stream):
            for pieces in stream:
                if self._on_gpu:
                    yield self._copied(pieces)
                else:
                    width = sum(map(len, pieces))
                    torch.cat(pieces, out=self._images[:width])
                    yield width

    def _copied(self, pieces: list[torch.Tensor]) -> int:
        """Queue the copies of a batch behind the step that is running; waits for the one before that."""
        self._moved.synchronize()
        width = 0
        with torch.cuda.stream(self._copying):
            for piece in pieces:
                self._next[width : width + len(piece)].copy_(piece, non_blocking=True)
                width += len(piece)
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._copying)
        self._images[:width].copy_(self._next[:width])
        self._moved.record(current)
        return width


def decoded(
    images: LazyImages, wanted: Iterable[np.ndarray], workers: int, *, pinned_for: torch.device | None = None
) -> Generator[list[torch.Tensor], None, None]:
    """For each of the wanted rows (k,) the images there, (k, height, width, channels) uint8, in pieces along k.

    With `pinned_for`, a GPU, they come in memory that it can copy from while it computes.
    """
    at_once = max(1, _PIECE_BYTES // (images.nbytes // len(images)))
    theirs, ours = itertools.tee(wanted)
    pieces = (rows[start : start + at_once] for rows in theirs for start in range(0, len(rows), at_once))
    loader = torch.utils.data.DataLoader(
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


class _Pieces(torch.utils.data.Dataset[Any]):
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
