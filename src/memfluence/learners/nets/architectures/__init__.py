"""Architectures by name: `build`. Those of the appendix of Feldman & Zhang (2020), and our fast family.

Every builder is a function `name(in_channels, n_classes, *, options...)` of a module from images (batch, channels,
height, width) of any usual size to logits (batch, n_classes). Modules are made of torch's own layers with torch's own
initialisation and hold no other parameters, so calling `reset_parameters` of every layer that has it starts a new
model. A layer with `fit_to_images` is then fitted to images that the model keeps, before it is trained. This file does
not import torch; a builder's file is imported when it is built.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memfluence.errors import LearnerError
from memfluence.learners.settings import known_or_error

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ARCHITECTURES", "build", "options_of"]

# Name -> module of this folder that has the builder of that name; "" is this one.
ARCHITECTURES: dict[str, str] = {
    "densenet100": "densenet100",
    "inception": "inception",
    "linear": "",
    "resnet18": "resnet",
    "resnet50": "resnet",
    "resnet50_imagenet": "resnet",
    "resnet9": "resnet9",
}


def build(name: str, in_channels: int, n_classes: int, **options: Any) -> "nn.Module":
    """A new model of the architecture `name`, on the CPU in float32; `options` are the builder's own (`width=32`)."""
    builder = _builder(name)
    for count, value in (("in_channels", in_channels), ("n_classes", n_classes)):
        if value < 1:
            raise LearnerError(f"{name} needs {count} of at least 1; got {value}.")
    for option in options:
        known_or_error(option, options_of(name), f"{name} has no option", "Its options are")
    return builder(in_channels, n_classes, **options)


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options of an architecture, by name."""
    parameters = inspect.signature(_builder(name)).parameters
    return {option: one for option, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def linear(in_channels: int, n_classes: int) -> "nn.Module":
    """Representations (batch, in_channels), or with further axes of length 1, to logits.

    The paper trains it on the hidden representations of another model. Anything else is flattened: for images,
    `in_channels` is channels * height * width.
    """
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels, n_classes))


def _builder(name: str) -> "Callable[..., nn.Module]":
    known_or_error(name, ARCHITECTURES, "there is no architecture", "There are")
    module = importlib.import_module(f"{__name__}.{ARCHITECTURES[name]}" if ARCHITECTURES[name] else __name__)
    builder: Callable[..., nn.Module] = getattr(module, name)
    return builder
