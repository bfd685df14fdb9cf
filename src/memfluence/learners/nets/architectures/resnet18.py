"""ResNet-18 (He et al. 2016) for small images: first convolution 3x3 of stride 1, no max-pooling."""

from torch import nn

from memfluence.learners.nets.architectures._residual import BasicBlock, ResidualNetwork, cifar_stem

__all__ = ["resnet18"]


def resnet18(in_channels: int, n_classes: int) -> nn.Module:
    """Images (batch, channels, height, width) to logits; 11.2 million parameters."""
    return ResidualNetwork(cifar_stem(in_channels), BasicBlock, (2, 2, 2, 2), n_classes)
