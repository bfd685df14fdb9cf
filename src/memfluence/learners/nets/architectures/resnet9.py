"""ResNet-9: the fast family, a short and wide residual network from the speed-run world (Page 2018, Jordan 2024).

Eight 3x3 convolutions and a linear layer; most of the arithmetic is on small images, where a GPU is busiest. With
`whiten` the first convolution is not trained: it whitens patches of 2x2 pixels, fitted on images that the model keeps.
That saves the most expensive gradients, those at the full size of the image, and fits in fewer epochs.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from memfluence.errors import LearnerError
from memfluence.learners.nets.kernels.fused_norm import pooled_norm_celu

_CELU = 0.3  # smoother than ReLU near 0, which fits in fewer epochs; Page's
_NORM_MOMENTUM = 0.4  # the running statistics follow a short training closely, where torch's 0.1 would lag behind
_LOGIT_SCALE = 0.125  # keeps the softmax soft at the high rates of a short training; a power of 2, exact in bfloat16
_SMALLEST_VARIANCE = 5e-4  # of a whitened component, for images scaled to [-1, 1]: noise below it is not blown up


def resnet9(in_channels: int, n_classes: int, *, width: int = 64, whiten: bool = False) -> nn.Module:
    """Images (batch, channels, height, width) to logits, images from 8x8 up.

    `width`: channels after the first convolution, the last has eight times as many. At 64, as in the original, there
    are 6.6 million parameters and kept CIFAR-100 examples are fitted; half of it takes a quarter of the arithmetic.
    `whiten`: a first layer that is fitted and not trained, with 8 channels for each of the image's.
    """
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise LearnerError(f"the option 'width' of resnet9 must be an integer of at least 1; got {width!r}.")
    if not isinstance(whiten, bool):
        raise LearnerError(f"the option 'whiten' of resnet9 must be true or false; got {whiten!r}.")
    first: nn.Module = _Whitening(in_channels) if whiten else _Convolution(in_channels, width)
    n_in = 8 * in_channels if whiten else width
    return nn.Sequential(
        first,
        _Convolution(n_in, 2 * width, halve=True),
        _Residual(2 * width),
        _Convolution(2 * width, 4 * width, halve=True),
        _Convolution(4 * width, 8 * width, halve=True),
        _Residual(8 * width),
        _Head(8 * width, n_classes),
    )


class _Convolution(nn.Module):
    """Convolution, 2x2 max-pooling where the image is to be halved, batch normalization, CELU, and what is added."""

    def __init__(self, n_in: int, n_out: int, *, halve: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(n_out, momentum=_NORM_MOMENTUM)
        self.halve = halve

    def forward(self, images: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        convolved = self.convolution(images)
        norm = self.norm
        if self.training:  # pooling before the normalization, which then has a quarter of the work
            assert norm.running_mean is not None
            assert norm.running_var is not None
            return pooled_norm_celu(
                convolved,
                norm.weight,
                norm.bias,
                norm.running_mean,
                norm.running_var,
                _NORM_MOMENTUM,
                norm.eps,
                _CELU,
                self.halve,
                added,
            )
        found = F.celu(norm(F.max_pool2d(convolved, 2) if self.halve else convolved), _CELU)
        return found if added is None else found + added


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = _Convolution(channels, channels), _Convolution(channels, channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(self.first(images), added=images)
        return found


class _Whitening(nn.Module):
    """Patches of 2x2 pixels in whitened coordinates, each with both signs, and CELU; the image's size is kept."""

    filters: torch.Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        rows = -(-4 * in_channels // 8) * 8  # a patch's values and zeros: products are fast for multiples of 8
        self.register_buffer("filters", torch.zeros(rows, 8 * in_channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        whitened = _patches(images, len(self.filters)) @ self.filters  # (batch, height, width, 8 * channels)
        return F.celu(whitened, _CELU).permute(0, 3, 1, 2)

    @torch.no_grad()
    def fit_to_images(self, images: torch.Tensor) -> None:
        """Fit to images (n, channels, height, width): call with those that the model keeps, and no others."""
        n_values = 4 * images.shape[1]
        values = _patches(images.double(), n_values).reshape(-1, n_values)
        moments = (values.T @ values / len(values)).cpu().numpy()
        variances, directions = np.linalg.eigh(moments)  # ascending; a direction in each column
        largest = directions[np.abs(directions).argmax(axis=0), np.arange(n_values)]
        scaled = directions * np.sign(largest) / np.sqrt(variances.clip(min=0) + _SMALLEST_VARIANCE)
        self.filters.zero_()
        self.filters[:n_values] = torch.from_numpy(np.hstack([scaled, -scaled])).to(self.filters)


def _patches(images: torch.Tensor, n_values: int) -> torch.Tensor:
    """Each pixel with its right, lower and lower right neighbour, (batch, height, width, n_values), filled with 0."""
    pixels = F.pad(images, (0, 1, 0, 1), mode="replicate").permute(0, 2, 3, 1)
    corners = [pixels[:, :-1, :-1], pixels[:, :-1, 1:], pixels[:, 1:, :-1], pixels[:, 1:, 1:]]
    zeros = corners[0].new_zeros(()).expand(*corners[0].shape[:3], n_values - 4 * images.shape[1])
    return torch.cat([*corners, zeros], dim=3)


class _Head(nn.Module):
    """The maximum over the image, a linear layer without bias, and the scale of the logits."""

    def __init__(self, n_in: int, n_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(images.amax(dim=(2, 3))) * _LOGIT_SCALE  # (batch, n_classes)
        return logits
