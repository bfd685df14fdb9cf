"""New models for a trainer: of our architectures, or of a factory of the user's, of which less is known.

Our architectures start anew by the `reset_parameters` of their layers. A module of the user's may hold parameters and
buffers that no layer draws, so it starts anew by being made anew; its values are then copied into those of the module
that is being trained, whose place in memory a captured step knows, and its other attributes to that module.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memfluence.errors import LearnerError
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.nets.architectures import build
from memfluence.learners.nets.plain_attributes import refuse_hidden_tensors, take_over

__all__ = ["FreshModels", "full_precision_head", "last_linear"]


class FreshModels:
    """Makes the model that is trained, once, and starts it anew for every trial."""

    def __init__(
        self,
        architecture: str | ModuleFactory,
        options: Mapping[str, Any],
        image: tuple[int, int, int],  # channels, height, width
        n_classes: int,
    ) -> None:
        self._architecture, self._options, self._image, self._n_classes = architecture, options, image, n_classes

    @property
    def of_user(self) -> bool:
        return not isinstance(self._architecture, str)

    def first(self) -> nn.Module:
        """The model to train, on the CPU in float32; its values are those of no trial."""
        with torch.random.fork_rng(devices=[]):  # layers draw when they are made; the user's generator is left alone
            if isinstance(self._architecture, str):
                return full_precision_head(build(self._architecture, self._image[0], self._n_classes, **self._options))
            torch.manual_seed(0)  # what a factory draws and keeps outside of parameters and buffers
            model = self._made(self._architecture)
            self._check(model, self._architecture.name)
            refuse_hidden_tensors(model, self._architecture.name)
            return full_precision_head(model)

    @torch.no_grad()
    def restart(self, model: nn.Module) -> None:
        """Draw the model's values anew from torch's generator; nothing of an earlier trial stays in it."""
        if isinstance(self._architecture, str):
            for layer in model.modules():
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()  # type: ignore[operator]
            return
        made = self._made(self._architecture)
        old, new = ([*one.parameters(), *one.buffers()] for one in (model, made))
        if made is model or {id(value) for value in old} & {id(value) for value in new}:
            raise LearnerError(
                f"{self._architecture.name} gives a module, or a part of one, that it gave before, but every trial"
                " begins with a new one; make it, or copy.deepcopy it, at every call."
            )
        if [value.shape for value in old] != [value.shape for value in new] or _parts(model) != _parts(made):
            raise LearnerError(
                f"{self._architecture.name} makes modules of different shapes when called again; all trials of a run"
                " train one kind of model."
            )
        for value, drawn in zip(old, new):
            value.copy_(drawn)
        take_over(model, made)

    def check_trained(self, model: nn.Module) -> None:
        """Refuse a module that keeps tensors of its training where a trial does not know of them."""
        if not isinstance(self._architecture, str):
            refuse_hidden_tensors(model, self._architecture.name)

    def _made(self, factory: ModuleFactory) -> nn.Module:
        model = factory.build(self._image[0], self._n_classes, self._options).float().cpu()
        if any(is_lazy(value) for value in (*model.parameters(), *model.buffers())):
            self._logits(model, factory.name)  # draws what its first inputs decide the shape of
        return model

    def _check(self, model: nn.Module, name: str) -> None:
        logits = self._logits(model, name)
        if not isinstance(logits, torch.Tensor) or logits.shape != (2, self._n_classes):
            found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
            raise LearnerError(
                f"{name} must map images (2, {', '.join(map(str, self._image))}) to logits (2, {self._n_classes});"
                f" got {found}."
            )

        if not any(value.requires_grad for value in model.parameters()):
            raise LearnerError(f"{name} makes a module that has no parameters to train; give one that has.")

    @torch.no_grad()
    def _logits(self, model: nn.Module, name: str) -> Any:
        try:
            return model.eval()(torch.zeros(2, *self._image))
        except Exception as error:  # other people's code
            raise LearnerError(
                f"{name} cannot be applied to images (2, {', '.join(map(str, self._image))}), which are (batch,"
                f" channels, height, width); features are 1 x 1 pixels: {type(error).__name__}: {error}."
            ) from error


def _parts(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_modules()]


def full_precision_head(model: nn.Module) -> nn.Module:
    """The model with its last linear layer computed in float32: bfloat16 logits would tie at the arg max.

    The layer itself stays, with its parameters: they may be shared with another, or drawn in the user's own way.
    """
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if linear and type(linear[-1]) is nn.Linear:
        linear[-1].__class__ = _FullPrecisionLinear
    return model


def last_linear(model: nn.Module) -> nn.Linear:
    """The layer whose inputs are the model's representations."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise LearnerError("the network has no linear layer, so there is no telling what its last one is given.")
    return linear[-1]


class _FullPrecisionLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())
