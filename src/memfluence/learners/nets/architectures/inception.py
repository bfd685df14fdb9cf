"""The small Inception of Zhang et al. 2017 ("Understanding deep learning requires rethinking generalization", Fig. 3).

The paper uses it for MNIST and, among other architectures, for CIFAR-100. Zhang et al. give 1,649,402 parameters at 3
channels and 10 classes: a shift but no scale for each normalized channel. Our choice is torch's normalization, with a
scale as well (1,712 more), which fast kernels expect; and the mean over the whole last image, which is their 7x7
pooling for images of 28x28 and takes other sizes too.
"""

import torch
import torch.nn.functional as F
from torch import nn

# (1x1 filters, 3x3 filters) of an inception module; a single number is the 3x3 filters of a downsampling module.
_MODULES: list[tuple[int, int] | int] = [
    (32, 32),
    (32, 48),
    80,
    (112, 48),
    (96, 64),
    (80, 80),
    (48, 96),
    96,
    (176, 160),
    (176, 160),
]
_STEM = 96


def inception(in_channels: int, n_classes: int) -> nn.Module:
    """Images (batch, channels, height, width) to logits; 1.65 million parameters."""
    modules: list[nn.Module] = [_Convolution(in_channels, _STEM, 3)]
    n_in = _STEM
    for filters in _MODULES:
        if isinstance(filters, tuple):
            modules.append(_Parallel(_Convolution(n_in, filters[0], 1), _Convolution(n_in, filters[1], 3)))
            n_in = sum(filters)
        else:
            modules.append(_Parallel(_Convolution(n_in, filters, 3, 2), nn.MaxPool2d(3, 2, padding=1)))
            n_in += filters
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


class _Convolution(nn.Module):
    """Convolution, batch normalization, ReLU; the size of the image is kept at stride 1 and halved at stride 2."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(n_out)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.convolution(images)))


class _Parallel(nn.Module):
    """Two branches side by side, their channels concatenated."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.first(images), self.second(images)], dim=1)
