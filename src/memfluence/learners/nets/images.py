"""Images on the device: raw values stay there for all trials; crops, flips and scaling are batch operations.

What the trainer asks of images is `ImageSource`: `ImageData` has them all, `streaming.StreamedImages` brings them.

Raw values are kept as they came (uint8 for pictures), padded once for crops, as (n, height, width, channels), so that a
batch is one gather that comes out in the layout convolutions like best.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as functional

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.nets.features import refuse_missing
from memfluence.learners.recipes import Recipe

__all__ = [
    "ImageData",
    "ImageSource",
    "Split",
    "block_rows",
    "channel_statistics",
    "crop_and_flip",
    "load_images",
    "padded_images",
    "scaling",
]

Split = Literal["train", "test"]
_CHANNELS = (1, 3, 4)
_EVALUATED_AT_ONCE = 2500  # pictures; fewer where they are larger than
_VALUES_AT_ONCE = 1 << 27  # lets them be: about 900 of ImageNet's


def block_rows(shape: tuple[int, ...]) -> int:
    """How many images of the shape (n, height, width, channels) are looked at together."""
    return max(1, min(_EVALUATED_AT_ONCE, _VALUES_AT_ONCE // int(np.prod(shape[1:]))))


class ImageSource(Protocol):
    """Where a trainer's images come from."""

    @property
    def size(self) -> tuple[int, int]: ...  # height, width

    @property
    def channels(self) -> int: ...

    @property
    def labels(self) -> torch.Tensor: ...  # (n_train,) class codes, on the device

    @property
    def value_range(self) -> tuple[float, float]: ...

    def count(self, split: Split) -> int:
        """How many images a split has."""
        ...

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
    train, test = (_as_images(inputs, dataset.name) for inputs in (dataset.x_train, dataset.x_test))
    if flat:
        train, test = (images.reshape(len(images), 1, 1, -1) for images in (train, test))
    if dataset.value_range is None and recipe.normalization in ("fixed", "unit"):
        raise LearnerError(
            f"{dataset.name}: the range of its values is not known, so they cannot be scaled by it;"
            " use --set normalization=subset (each model's own kept examples)."
        )
    on_device = torch.tensor(train, device=device)  # a copy: the dataset's own arrays may be read-only
    return ImageData(
        train=on_device,
        padded=padded_images(on_device, recipe.crop_padding, recipe.padding_mode),
        test=torch.tensor(test, device=device),
        labels=torch.from_numpy(dataset.y_train).to(device),
        value_range=dataset.value_range or (0.0, 1.0),
    )


def _as_images(inputs: Any, name: str) -> np.ndarray:
    """(n, height, width, channels) uint8 or float32; features without a picture become 1x1 images."""
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu().numpy()
    try:
        array = np.asarray(inputs)
    except ValueError:  # images of different sizes
        array = np.empty(len(inputs), dtype=object)
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
    """Where each position of the padded axis comes from; the edge itself is not repeated."""
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
