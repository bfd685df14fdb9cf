"""ResNet-9: the start of the fast family, a short and wide residual network from the speed-run world (Page 2018).

Eight 3x3 convolutions and a linear layer; most of the arithmetic is on small images, where a GPU is busiest.
"""

import torch
from torch import nn

from memfluence.errors import LearnerError

__all__ = ["resnet9"]

_CELU = 0.3  # smoother than ReLU near 0, which fits in fewer epochs; Page's
_NORM_MOMENTUM = 0.4  # the running statistics follow a short training closely, where torch's 0.1 would lag behind
_LOGIT_SCALE = 0.125  # keeps the softmax soft at the high rates of a short training; a power of 2, exact in bfloat16


def resnet9(in_channels: int, n_classes: int, *, width: int = 64) -> nn.Module:
    """Images (batch, channels, height, width) to logits, images from 8x8 up.

    `width`: channels after the first convolution, the last has eight times as many. At 64, as in the original, there
    are 6.6 million parameters and kept CIFAR-100 examples are fitted; half of it takes a quarter of the arithmetic.
    """
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise LearnerError(f"the option 'width' of resnet9 must be an integer of at least 1; got {width!r}.")
    return nn.Sequential(
        *_convolution(in_channels, width),
        *_convolution(width, 2 * width, halve=True),
        _Residual(2 * width),
        *_convolution(2 * width, 4 * width, halve=True),
        *_convolution(4 * width, 8 * width, halve=True),
        _Residual(8 * width),
        _Head(8 * width, n_classes),
    )


def _convolution(n_in: int, n_out: int, *, halve: bool = False) -> list[nn.Module]:
    pool = [nn.MaxPool2d(2)] if halve else []  # before the normalization, which then has a quarter of the work
    convolution = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
    return [convolution, *pool, nn.BatchNorm2d(n_out, momentum=_NORM_MOMENTUM), nn.CELU(_CELU)]


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(*_convolution(channels, channels), *_convolution(channels, channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = images + self.branch(images)
        return added


class _Head(nn.Module):
    """The maximum over the image, a linear layer without bias, and the scale of the logits."""

    def __init__(self, n_in: int, n_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(images.amax(dim=(2, 3))) * _LOGIT_SCALE  # (batch, n_classes)
        return logits
