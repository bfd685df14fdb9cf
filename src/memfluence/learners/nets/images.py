"""Images for a trainer: all of them on the device, or batches that are decoded while the model trains.

What the trainer asks of images is `ImageSource`. `ImageData` has them all on the device, as they came (uint8 for
pictures), padded once for crops, as (n, height, width, channels), so that a batch is one gather that comes out in the
layout convolutions like best; crops, flips and scaling are batch operations.

`StreamedImages` brings those that the device cannot hold. Worker processes decode images ahead, in the order that is
asked for, whatever the number of workers is. A captured step reads its images at a fixed place. While it runs, workers
decode the next batch and a stream of its own copies that to a second place on the device; between two steps it is
moved to the first, which takes microseconds.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as functional
import torch.utils.data

from memfluence.datasets import Dataset, LazyImages
from memfluence.errors import DatasetError, LearnerError
from memfluence.learners.nets.device import available_cores, refuse_missing
from memfluence.learners.network import ImageLoading
from memfluence.learners.recipes import Recipe

Split = Literal["train", "test"]
_CHANNELS = (1, 3, 4)
_EVALUATED_AT_ONCE = 2500  # pictures; fewer where they are larger than
_VALUES_AT_ONCE = 1 << 27  # lets them be: about 900 of ImageNet's


def block_rows(shape: tuple[int, ...]) -> int:
    """The number of images of the shape (n, height, width, channels) that are looked at together."""
    return max(1, min(_EVALUATED_AT_ONCE, _VALUES_AT_ONCE // int(np.prod(shape[1:]))))


class ImageSource(Protocol):
    """The source of a trainer's images."""

    @property
    def size(self) -> tuple[int, int]: ...  # height, width
    @property
    def channels(self) -> int: ...
    @property
    def labels(self) -> torch.Tensor: ...  # (n_train,) class codes, on the device
    @property
    def value_range(self) -> tuple[float, float]: ...
    def count(self, split: Split) -> int: ...  # images of a split

    def steps(self, rows: Iterable[np.ndarray]) -> Iterator[int]:
        """Bring the training images at each of the rows (k,) within reach of a step, one after another; gives k."""
        ...

    def batch(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Within a step, at its rows (k,): padded images, and which of those are the step's (k,)."""
        ...

    def blocks(self, split: Split) -> Iterator[torch.Tensor]:
        """All images of a split in order, (block_rows, height, width, channels) at a time, each gone with the next."""
        ...

    def some(self, rows: np.ndarray) -> torch.Tensor:
        """The training images at a few rows (k,): (k, height, width, channels)."""
        ...

    def statistics(self, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and standard deviation of each channel, (channels,) each, over training images; None for all."""
        ...


@dataclass(frozen=True)
class ImageData:
    """Both splits on one device."""

    train: torch.Tensor  # (n_train, height, width, channels)
    padded: torch.Tensor  # (n_train, height + 2 * padding, width + 2 * padding, channels)
    test: torch.Tensor  # (n_test, height, width, channels)
    labels: torch.Tensor  # (n_train,) class codes
    value_range: tuple[float, float]

    @property
    def size(self) -> tuple[int, int]:
        return int(self.train.shape[1]), int(self.train.shape[2])

    @property
    def channels(self) -> int:
        return int(self.train.shape[3])

    def count(self, split: Split) -> int:
        return len(self.train if split == "train" else self.test)

    def steps(self, rows: Iterable[np.ndarray]) -> Iterator[int]:
        return map(len, rows)

    def batch(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.padded, rows

    def blocks(self, split: Split) -> Iterator[torch.Tensor]:
        images = self.train if split == "train" else self.test
        return _cut(images, block_rows(tuple(images.shape)))

    def some(self, rows: np.ndarray) -> torch.Tensor:
        return self.train[torch.from_numpy(rows).to(self.train.device)]

    def statistics(self, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return channel_statistics(_cut(self.train if rows is None else self.train[rows], 4096))


def _cut(images: torch.Tensor, rows: int) -> Iterator[torch.Tensor]:
    for start in range(0, len(images), rows):
        yield images[start : start + rows]


def load_images(dataset: Dataset, recipe: Recipe, device: torch.device, *, flat: bool = False) -> ImageData:
    """The dataset's images, or an error that says what a network needs; `flat` makes each one pixel of all values."""
    refuse_missing(dataset)
    splits = (dataset.x_train, dataset.x_test)
    train, test = (_as_images(inputs, dataset.name, recipe.pictures) for inputs in splits)
    if dataset.value_range is None and recipe.normalization in ("fixed", "unit"):
        raise LearnerError(
            f"{dataset.name}: the range of its values is not known, so they cannot be scaled by it;"
            " use `settings={'normalization': 'subset'}` (each model's own kept examples)."
        )
    tables = [torch.tensor(images, device=device) for images in (train, test)]  # copies: arrays may be read-only
    return _image_data(tables, dataset, recipe, flat, dataset.value_range or (0.0, 1.0))


def _image_data(
    tables: list[torch.Tensor], dataset: Dataset, recipe: Recipe, flat: bool, value_range: tuple[float, float]
) -> ImageData:
    train, test = (table.reshape(len(table), 1, 1, -1) if flat else table for table in tables)
    return ImageData(
        train=train,
        padded=padded_images(train, recipe.crop_padding, recipe.padding_mode),
        test=test,
        labels=torch.from_numpy(dataset.y_train).to(train.device),
        value_range=value_range,
    )


def _as_images(inputs: Any, name: str, pictures: bool = True) -> np.ndarray:
    """(n, height, width, channels) uint8 or float32; what is no picture becomes 1x1 images of all its values."""
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu().numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:  # images of different sizes
        array = np.empty(len(inputs), dtype=object)
    if not pictures and array.dtype.kind in "biuf" and array.ndim > 1:
        array = array.reshape(len(array), -1)
    if array.dtype.kind not in "biuf" or array.ndim not in (2, 3, 4):
        raise LearnerError(
            f"{name}: a network needs images (n, height, width[, channels]) or features (n, d) as numbers; got the"
            f" shape {array.shape} of {array.dtype}. Other data go to a scikit-learn pipeline or a function."
        )
    if array.ndim == 2:
        array = array[:, None, None, :]
    elif array.ndim == 3:
        array = array[..., None]
    elif array.shape[3] not in _CHANNELS and array.shape[1] in _CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(array if array.dtype == np.uint8 else array.astype(np.float32))


def padded_images(images: torch.Tensor, padding: int, mode: str) -> torch.Tensor:
    """Images (n, height, width, channels) with so many pixels more on each side."""
    if padding == 0:
        return images
    if mode == "reflect" and padding >= min(images.shape[1:3]):
        raise LearnerError(f"crop_padding={padding} cannot be mirrored in images of {tuple(images.shape[1:3])} pixels.")
    if mode == "zeros":
        return functional.pad(images, (0, 0, padding, padding, padding, padding))
    rows, columns = (_mirrored_positions(size, padding, images.device) for size in images.shape[1:3])
    return images[:, rows][:, :, columns].contiguous()


def _mirrored_positions(size: int, padding: int, device: torch.device) -> torch.Tensor:
    """The position in the axis that each one of the padded axis shows; the edge itself is not repeated."""
    position = torch.arange(-padding, size + padding, device=device).abs()
    return torch.where(position >= size, 2 * (size - 1) - position, position)


def crop_and_flip(
    padded: torch.Tensor,  # (n, height + 2 * padding, width + 2 * padding, channels)
    rows: torch.Tensor,  # (batch,) which images
    top: torch.Tensor,  # (batch,) where the crop begins
    left: torch.Tensor,  # (batch,)
    flip: torch.Tensor,  # (batch,) bool
    shift: torch.Tensor,  # (channels,)
    factor: torch.Tensor,  # (channels,)
    size: tuple[int, int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """A batch (batch, channels, height, width), channels last in memory, scaled."""
    height, width = size
    down = torch.arange(height, device=padded.device)
    across = torch.arange(width, device=padded.device)
    y = top[:, None] + down  # (batch, height)
    x = left[:, None] + torch.where(flip[:, None], width - 1 - across, across)  # (batch, width)
    crops = padded[rows[:, None, None], y[:, :, None], x[:, None, :]]  # (batch, height, width, channels)
    return ((crops.float() - shift) * factor).to(dtype).permute(0, 3, 1, 2)


def scaling(data: ImageSource, recipe: Recipe, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per channel what is subtracted and what is multiplied, (channels,) each, for a model that keeps these rows."""
    low, high = data.value_range
    half = (high - low) / 2 or 1.0
    if recipe.normalization == "none":
        shift, factor = 0.0, 1.0
    elif recipe.normalization == "unit":
        shift, factor = low, 0.5 / half
    elif recipe.normalization == "fixed":
        shift, factor = (low + high) / 2, 1 / half
    else:
        means, deviations = data.statistics(None if recipe.normalization == "dataset" else kept)
        return means, 1 / torch.where(deviations > 0, deviations, 1)
    ones = torch.ones(data.channels, device=data.labels.device)
    return ones * shift, ones * factor


def channel_statistics(blocks: Iterable[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, in float64, over blocks of images (k, height, width, channels).

    Values are taken from the first one on: so a constant channel has a deviation of exactly 0, whatever the rounding.
    Of 8-bit images all sums are whole numbers and exact, so it does not matter how they are cut into blocks.
    """
    first = total = squares = torch.zeros(0)
    count = 0
    for block in blocks:
        if count == 0:
            first = block[0, 0, 0].double()  # (channels,)
            total, squares = torch.zeros_like(first), torch.zeros_like(first)
        values = block.double().flatten(0, 2) - first  # (pixels, channels)
        total += values.sum(0)
        squares += values.square().sum(0)
        count += len(values)
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0)
    return (first + mean).float(), variance.sqrt().float()


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
        raise LearnerError(
            f"{dataset.name}: a linear model needs a table of all images; use `settings={{'images': 'table'}}`."
        )
    workers = loading.decode_workers if loading.decode_workers >= 0 else available_cores()
    if loading.images == "stream" or not (loading.images == "table" or flat or _fits(train, test, recipe, device)):
        return StreamedImages(train, test, dataset.y_train, recipe, device, batch=batch, workers=workers)
    tables = [decoded_table(images, workers, device) for images in (train, test)]
    return _image_data(tables, dataset, recipe, flat, dataset.value_range or (0.0, 255.0))


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
