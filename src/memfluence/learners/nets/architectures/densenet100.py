"""DenseNet-BC of 100 layers and growth 12 (Huang et al. 2017), for small images.

Three dense blocks of 16 bottlenecks. Each bottleneck sees the channels of all before it in its block and adds 12 of
its own; between blocks a 1x1 convolution halves the channels and a mean over 2x2 halves the image.
"""

import torch
import torch.nn.functional as F
from torch import nn

_GROWTH = 12
_BLOCKS = 3
_LAYERS = (
    16  # in a block: 3 blocks x 16 layers x 2 convolutions, the first, 2 transitions and the linear layer make 100
)
_BOTTLENECK = 4 * _GROWTH  # channels between the 1x1 and the 3x3 convolution
_COMPRESSION = 2  # a transition keeps one channel in two


def densenet100(in_channels: int, n_classes: int) -> nn.Module:
    """Images (batch, channels, height, width) to logits; 0.8 million parameters, images from 4x4 up."""
    n_in = 2 * _GROWTH  # channels of the first convolution, as in the original with bottlenecks
    modules: list[nn.Module] = [nn.Conv2d(in_channels, n_in, 3, padding=1, bias=False)]
    for block in range(_BLOCKS):
        if block > 0:
            modules += [_NormReluConvolution(n_in, n_in // _COMPRESSION, 1), nn.AvgPool2d(2)]
            n_in //= _COMPRESSION
        for _ in range(_LAYERS):
            modules.append(_Dense(n_in))
            n_in += _GROWTH
    modules += [nn.BatchNorm2d(n_in), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes)]
    return nn.Sequential(*modules)


class _NormReluConvolution(nn.Module):
    """Batch normalization, ReLU and a convolution that keeps the image's size, in this order."""

    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(n_in)
        self.convolution = nn.Conv2d(n_in, n_out, kernel, padding=kernel // 2, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        convolved: torch.Tensor = self.convolution(F.relu(self.norm(images)))
        return convolved


class _Dense(nn.Module):
    """The input, followed by `_GROWTH` new channels made from it."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            _NormReluConvolution(n_in, _BOTTLENECK, 1), _NormReluConvolution(_BOTTLENECK, _GROWTH, 3)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([images, self.new(images)], dim=1)
