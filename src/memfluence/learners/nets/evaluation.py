"""What a model says about all images of a split, block by block."""

from collections.abc import Callable

import torch
from torch import nn

from memfluence.learners.nets.fresh_models import last_linear
from memfluence.learners.nets.images import ImageSource, Split, block_rows

__all__ = ["given_to_head", "predicted", "widest_block"]

Predict = Callable[[torch.Tensor], torch.Tensor]  # of raw images (k, height, width, channels)


def predicted(predict: Predict, data: ImageSource, split: Split, *, one_width: bool) -> torch.Tensor:
    """Logits (n, n_classes) float32. For a compiled model all blocks get one width: a narrower one is repeated."""
    found = []
    for block in data.blocks(split):
        rows, filled = len(block), block
        if one_width and rows < widest_block(data):
            filled = block[torch.arange(widest_block(data), device=block.device) % rows]
        found.append(predict(filled)[:rows].float())
    return torch.cat(found)


def widest_block(data: ImageSource) -> int:
    """How many images are predicted together, at most."""
    return min(max(data.count("train"), data.count("test")), block_rows((0, *data.size, data.channels)))


def given_to_head(model: nn.Module, predict: Predict, data: ImageSource, split: Split) -> torch.Tensor:
    """What the last linear layer is given, (n, n_features) float32; a compiled model would call no hook."""
    found: list[torch.Tensor] = []
    hook = last_linear(model).register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].float()))
    try:
        for block in data.blocks(split):
            predict(block)
    finally:
        hook.remove()
    return torch.cat(found).flatten(1)
