"""ResNet-50 (He et al. 2016): the paper's variant for CIFAR-100, and the original for ImageNet."""

from torch import nn

from memfluence.learners.nets.architectures._residual import Bottleneck, ResidualNetwork, cifar_stem, imagenet_stem

__all__ = ["resnet50", "resnet50_imagenet"]

_DEPTHS = (3, 4, 6, 3)


def resnet50(in_channels: int, n_classes: int) -> nn.Module:
    """For small images: first convolution 3x3 of stride 1, no max-pooling; 23.7 million parameters at 100 classes."""
    return ResidualNetwork(cifar_stem(in_channels), Bottleneck, _DEPTHS, n_classes)


def resnet50_imagenet(in_channels: int, n_classes: int) -> nn.Module:
    """For images of about 224x224: first convolution 7x7 of stride 2, then max-pooling; 25.6 million parameters."""
    return ResidualNetwork(imagenet_stem(in_channels), Bottleneck, _DEPTHS, n_classes)
