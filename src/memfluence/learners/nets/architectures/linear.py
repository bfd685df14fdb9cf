"""A linear model, which the paper trains on the hidden representations of another model."""

from torch import nn

__all__ = ["linear"]


def linear(in_channels: int, n_classes: int) -> nn.Module:
    """Representations (batch, in_channels), or with further axes of length 1, to logits.

    Anything else is flattened: for images, `in_channels` is channels * height * width.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels, n_classes))
