"""ResNet-18 and ResNet-50 (He et al. 2016), of two kinds of block in four stages.

`resnet18` and `resnet50` are for small images: their first convolution is 3x3 of stride 1, and there is no max-pooling.
`resnet50_imagenet` is the original, for large ones.

Our choices, which the paper leaves unsaid: a bottleneck halves the image in its 3x3 convolution rather than in its
first 1x1 (known as version 1.5, a little more accurate), and a shortcut whose shape changes is a 1x1 convolution with
batch normalization (He et al.'s option B).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

_WIDTHS = (64, 128, 256, 512)  # of the 3x3 convolutions in the four stages
_STRIDES = (1, 2, 2, 2)  # of each stage's first block
_DEPTHS_18, _DEPTHS_50 = (2, 2, 2, 2), (3, 4, 6, 3)  # blocks in each stage


def _conv_norm(n_in: int, n_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size at stride 1, without the bias that the normalization would undo."""
    convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out))


class _Residual(nn.Module):
    """ReLU of a shortcut plus a branch."""

    def __init__(self, branch: nn.Module, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = nn.Identity() if (n_in, stride) == (n_out, 1) else _conv_norm(n_in, n_out, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.relu(self.branch(images) + self.shortcut(images))


class _BasicBlock(_Residual):
    """Two 3x3 convolutions, of ResNet-18."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        layers = [_conv_norm(n_in, width, 3, stride), nn.ReLU(), _conv_norm(width, width, 3)]
        super().__init__(nn.Sequential(*layers), n_in, width, stride)


class _Bottleneck(_Residual):
    """1x1, 3x3 and 1x1 convolutions, the last four times as wide, of ResNet-50."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        n_out = width * self.expansion
        layers = [_conv_norm(n_in, width, 1), nn.ReLU(), _conv_norm(width, width, 3, stride), nn.ReLU()]
        super().__init__(nn.Sequential(*layers, _conv_norm(width, n_out, 1)), n_in, n_out, stride)


class _ResidualNetwork(nn.Module):
    """A stem, four stages of blocks, the mean over the image, and a linear layer."""

    def __init__(
        self, stem: nn.Module, block: type[_BasicBlock] | type[_Bottleneck], depths: Sequence[int], n_classes: int
    ) -> None:
        super().__init__()
        self.stem = stem
        blocks: list[nn.Module] = []
        n_in = _WIDTHS[0]
        for width, stride, depth in zip(_WIDTHS, _STRIDES, depths, strict=True):
            for k in range(depth):
                blocks.append(block(n_in, width, stride if k == 0 else 1))
                n_in = width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(n_in, n_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.blocks(self.stem(images))  # (batch, n_features, height / 8, width / 8) of what the stem gives
        logits: torch.Tensor = self.head(features.mean(dim=(2, 3)))  # (batch, n_classes)
        return logits


def _cifar_stem(in_channels: int) -> nn.Sequential:
    """For small images: the appendix's single 3x3 convolution of stride 1, and no max-pooling."""
    return nn.Sequential(_conv_norm(in_channels, _WIDTHS[0], 3), nn.ReLU())


def _imagenet_stem(in_channels: int) -> nn.Sequential:
    """For large images: He et al.'s 7x7 convolution of stride 2 and 3x3 max-pooling of stride 2."""
    return nn.Sequential(_conv_norm(in_channels, _WIDTHS[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))


def resnet18(in_channels: int, n_classes: int) -> nn.Module:
    """Images (batch, channels, height, width) to logits; 11.2 million parameters."""
    return _ResidualNetwork(_cifar_stem(in_channels), _BasicBlock, _DEPTHS_18, n_classes)


def resnet50(in_channels: int, n_classes: int) -> nn.Module:
    """For small images: first convolution 3x3 of stride 1, no max-pooling; 23.7 million parameters at 100 classes."""
    return _ResidualNetwork(_cifar_stem(in_channels), _Bottleneck, _DEPTHS_50, n_classes)


def resnet50_imagenet(in_channels: int, n_classes: int) -> nn.Module:
    """For images of about 224x224: first convolution 7x7 of stride 2, then max-pooling; 25.6 million parameters."""
    return _ResidualNetwork(_imagenet_stem(in_channels), _Bottleneck, _DEPTHS_50, n_classes)
