"""Images on the device: raw values stay there for all trials; crops, flips and scaling are batch operations.

Raw values are kept as they came (uint8 for pictures), padded once for crops, as (n, height, width, channels), so that a
batch is one gather that comes out in the layout convolutions like best.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners.recipes import Recipe

__all__ = ["ImageData", "crop_and_flip", "load_images", "scaling"]

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class ImageData:
    """Both splits on one device."""

    train: torch.Tensor  # (n_train, height, width, channels)
    padded: torch.Tensor  # (n_train, height + 2 * padding, width + 2 * padding, channels)
    test: torch.Tensor  # (n_test, height, width, channels)
    labels: torch.Tensor  # (n_train,) class codes
    value_range: tuple[float, float]

    @property
    def channels(self) -> int:
        return int(self.train.shape[3])


def load_images(dataset: Dataset, recipe: Recipe, device: torch.device, *, flat: bool = False) -> ImageData:
    """The dataset's images, or an error that says what a network needs; `flat` makes each one pixel of all values."""
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
        padded=_padded(on_device, recipe.crop_padding, recipe.padding_mode),
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


def _padded(images: torch.Tensor, padding: int, mode: str) -> torch.Tensor:
    if padding == 0:
        return images
    if mode == "reflect" and padding >= min(images.shape[1:3]):
        raise LearnerError(f"crop_padding={padding} cannot be mirrored in images of {tuple(images.shape[1:3])} pixels.")
    rows = _padded_positions(images.shape[1], padding, mode, images.device)
    columns = _padded_positions(images.shape[2], padding, mode, images.device)
    padded = images[:, rows.clamp(min=0)][:, :, columns.clamp(min=0)]
    if mode == "zeros":
        padded[:, rows < 0] = 0
        padded[:, :, columns < 0] = 0
    return padded.contiguous()


def _padded_positions(size: int, padding: int, mode: str, device: torch.device) -> torch.Tensor:
    """Where each position of the padded axis comes from; -1 for nowhere (zeros)."""
    position = torch.arange(-padding, size + padding, device=device)
    if mode == "zeros":
        return torch.where((position < 0) | (position >= size), -1, position)
    mirrored = position.abs()  # the edge itself is not repeated
    return torch.where(mirrored >= size, 2 * (size - 1) - mirrored, mirrored)


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


def scaling(data: ImageData, recipe: Recipe, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per channel what is subtracted and what is multiplied, (channels,) each, for a model that keeps these rows."""
    low, high = data.value_range
    half = (high - low) / 2 or 1.0
    of = data.train.new_tensor  # on the device
    if recipe.normalization == "none":
        shift, factor = 0.0, 1.0
    elif recipe.normalization == "unit":
        shift, factor = low, 0.5 / half
    elif recipe.normalization == "fixed":
        shift, factor = (low + high) / 2, 1 / half
    else:
        seen = data.train if recipe.normalization == "dataset" else data.train[kept]
        means, deviations = _channel_statistics(seen)
        return means, 1 / torch.where(deviations > 0, deviations, 1)
    ones = of([1] * data.channels, dtype=torch.float32)
    return ones * shift, ones * factor


def _channel_statistics(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, in float64 and in blocks.

    Values are taken from the first one on: so a constant channel has a deviation of exactly 0, whatever the rounding.
    """
    first = images[0, 0, 0].double()  # (channels,)
    total = torch.zeros(images.shape[3], dtype=torch.float64, device=images.device)  # (channels,)
    squares = torch.zeros_like(total)
    for start in range(0, len(images), 4096):
        values = images[start : start + 4096].double().flatten(0, 2) - first  # (pixels, channels)
        total += values.sum(0)
        squares += values.square().sum(0)
    count = images[..., 0].numel()
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0)
    return (first + mean).float(), variance.sqrt().float()
