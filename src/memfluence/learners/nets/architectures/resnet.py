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

from memfluence.learners.nets.kernels.fused_norm import norm_relu

_WIDTHS = (64, 128, 256, 512)  # of the 3x3 convolutions in the four stages
_STRIDES = (1, 2, 2, 2)  # of each stage's first block
_DEPTHS_18, _DEPTHS_50 = (2, 2, 2, 2), (3, 4, 6, 3)  # blocks in each stage


class _Pointwise(nn.Conv2d):
    """1x1 with a stride: cuDNN takes up to ten times as long for it as for a copy of the pixels that count."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        down, across = self.stride
        pixels = images.permute(0, 2, 3, 1)[:, ::down, ::across].contiguous()  # one copy for all that reads them
        return F.conv2d(pixels.permute(0, 3, 1, 2), self.weight)


class _OfPatches(nn.Conv2d):
    """For the few channels of images, for which cuDNN has no fast kernels: a product of patches with the weights."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return by_patches(images, self.weight) if images.is_cuda else super().forward(images)


def by_patches(images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The convolution of stride 1, filled with 0 so that the size is kept."""
    n, _, height, width = images.shape
    n_out, n_in, kernel, _ = weight.shape
    pad, n_values = kernel // 2, n_in * kernel**2
    filled = -n_values % 8  # products are fast for multiples of 8
    pixels = F.pad(images.permute(0, 2, 3, 1), (0, 0, pad, pad, pad, pad))  # (n, height + 2, width + 2, n_in)
    patches = pixels.unfold(1, kernel, 1).unfold(2, kernel, 1)  # (n, height, width, n_in, kernel, kernel)
    values = F.pad(patches.permute(0, 1, 2, 4, 5, 3).reshape(n, height * width, n_values), (0, filled))
    factors = F.pad(weight.permute(0, 2, 3, 1).reshape(n_out, n_values), (0, filled)).to(values.dtype).T
    # A product for each image rather than one for all: the gradient of the weights is summed up in parallel.
    found = torch.bmm(values, factors.expand(n, *factors.shape))  # (n, height * width, n_out)
    return found.view(n, height, width, n_out).permute(0, 3, 1, 2)


class _Normalized(nn.Module):
    """A convolution that keeps the image's size at stride 1, without the bias that the normalization would undo."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int = 1, kind: type[nn.Conv2d] = nn.Conv2d) -> None:
        super().__init__()
        self.convolution = kind(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(n_out)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(self.convolution(images))
        return found


class _Activated(_Normalized):
    """ReLU of it, or of its sum with a shortcut."""

    def forward(self, images: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
        convolved, norm = self.convolution(images), self.norm
        if self.training:
            return norm_relu(convolved, norm, shortcut)
        return F.relu(norm(convolved) if shortcut is None else norm(convolved) + shortcut)


class _Residual(nn.Module):
    """ReLU of a shortcut plus a branch of convolutions."""

    def __init__(self, layers: Sequence[_Activated], n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first, self.last = nn.Sequential(*layers[:-1]), layers[-1]
        self.shortcut = (
            nn.Identity() if (n_in, stride) == (n_out, 1) else _Normalized(n_in, n_out, 1, stride, _Pointwise)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.first(images), self.shortcut(images))
        return found


class _BasicBlock(_Residual):
    """Two 3x3 convolutions, of ResNet-18."""

    expansion = 1

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__([_Activated(n_in, width, 3, stride), _Activated(width, width, 3)], n_in, width, stride)


class _Bottleneck(_Residual):
    """1x1, 3x3 and 1x1 convolutions, the last four times as wide, of ResNet-50."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        n_out = width * self.expansion
        layers = [_Activated(n_in, width, 1), _Activated(width, width, 3, stride), _Activated(width, n_out, 1)]
        super().__init__(layers, n_in, n_out, stride)


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


def _cifar_stem(in_channels: int) -> nn.Module:
    """For small images: the appendix's single 3x3 convolution of stride 1, and no max-pooling."""
    return _Activated(in_channels, _WIDTHS[0], 3, kind=_OfPatches)


def _imagenet_stem(in_channels: int) -> nn.Sequential:
    """For large images: He et al.'s 7x7 convolution of stride 2 and 3x3 max-pooling of stride 2."""
    return nn.Sequential(_Activated(in_channels, _WIDTHS[0], 7, 2), nn.MaxPool2d(3, 2, padding=1))


def resnet18(in_channels: int, n_classes: int) -> nn.Module:
    """Images (batch, channels, height, width) to logits; 11.2 million parameters."""
    return _ResidualNetwork(_cifar_stem(in_channels), _BasicBlock, _DEPTHS_18, n_classes)


def resnet50(in_channels: int, n_classes: int) -> nn.Module:
    """For small images: first convolution 3x3 of stride 1, no max-pooling; 23.7 million parameters at 100 classes."""
    return _ResidualNetwork(_cifar_stem(in_channels), _Bottleneck, _DEPTHS_50, n_classes)


def resnet50_imagenet(in_channels: int, n_classes: int) -> nn.Module:
    """For images of about 224x224: first convolution 7x7 of stride 2, then max-pooling; 25.6 million parameters."""
    return _ResidualNetwork(_imagenet_stem(in_channels), _Bottleneck, _DEPTHS_50, n_classes)
