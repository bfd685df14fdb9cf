"""Architectures by name: `build`. One file each, as in the appendix of Feldman & Zhang (2020), plus our fast family.

Every builder is a function `name(in_channels, n_classes, *, options...)` of a module from images (batch, channels,
height, width) of any usual size to logits (batch, n_classes). Modules are made of torch's own layers with torch's own
initialisation and hold no other parameters, so calling `reset_parameters` of every layer that has it starts a new
model. A layer with `fit_to_images` is then fitted to images that the model keeps, before it is trained. This file does
not import torch; a builder's file is imported when it is built.
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from memfluence.errors import LearnerError
from memfluence.learners._settings import known_or_error

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ARCHITECTURES", "build"]

# Name -> module of this folder that has the builder of that name.
ARCHITECTURES: dict[str, str] = {
    "densenet100": "densenet100",
    "inception": "inception",
    "linear": "linear",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnet50_imagenet": "resnet50",
    "resnet9": "resnet9",
}


def build(name: str, in_channels: int, n_classes: int, **options: Any) -> "nn.Module":
    """A new model of the architecture `name`, on the CPU in float32; `options` are the builder's own (`width=32`)."""
    known_or_error(name, ARCHITECTURES, "there is no architecture", "There are")
    for count, value in (("in_channels", in_channels), ("n_classes", n_classes)):
        if value < 1:
            raise LearnerError(f"{name} needs {count} of at least 1; got {value}.")
    builder = getattr(importlib.import_module(f"{__name__}.{ARCHITECTURES[name]}"), name)
    known = [key for key, one in inspect.signature(builder).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for option in options:
        known_or_error(option, known, f"{name} has no option", "Its options are")
    model: nn.Module = builder(in_channels, n_classes, **options)
    return model
