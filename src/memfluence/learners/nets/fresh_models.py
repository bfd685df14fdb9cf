"""`FreshModels`: one model that starts anew for every trial, of our architectures or of a user's factory.

The layers of our architectures draw their values anew by `reset_parameters`. A user's module may have parameters and
buffers that no layer draws. So the factory makes another module, and its values are copied into the module that is
trained: captured steps know the place of that one in memory.

A user's module may also have plain attributes: lists, counters, whatever its code sets on itself. They start anew as
well. Otherwise a module that remembers examples would show those of one trial to the next, which may leave them out.
Tensors in plain attributes are refused, because only parameters and buffers go to the device, into captured steps and
into checkpoints.
"""

import copy
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memfluence.errors import LearnerError
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.nets.architectures import build

_OF_TORCH = frozenset(nn.Module().__dict__)  # values, submodules, hooks, the mode
_TIED = (types.FunctionType, weakref.ref)  # cannot be copied, and may hold on to the module that they were made for


class Shaped(nn.Module):
    """Gives a module examples of their own shape, where they come as channels of one pixel."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.module, self.shape = module, shape

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.module(pixels.reshape(len(pixels), *self.shape))


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
        shape = factory.shape or self._image
        model = factory.build(shape[0], self._n_classes, self._options).float().cpu()
        if factory.shape:
            model = Shaped(model, shape)
        if any(is_lazy(value) for value in (*model.parameters(), *model.buffers())):
            self._logits(model, factory.name)  # draws what its first inputs decide the shape of
        return model

    def _check(self, model: nn.Module, name: str) -> None:
        logits = self._logits(model, name)
        if not isinstance(logits, torch.Tensor) or logits.shape != (2, self._n_classes):
            found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
            raise LearnerError(f"{name} must map {self._examples} to logits (2, {self._n_classes}); got {found}.")

        if not any(value.requires_grad for value in model.parameters()):
            raise LearnerError(f"{name} makes a module that has no parameters to train; give one that has.")

    @torch.no_grad()
    def _logits(self, model: nn.Module, name: str) -> Any:
        try:
            return model.eval()(torch.zeros(2, *self._image))
        except Exception as error:  # other people's code
            hint = "" if self._shape else ", which are (batch, channels, height, width); features are 1 x 1 pixels"
            raise LearnerError(
                f"{name} cannot be applied to {self._examples}{hint}: {type(error).__name__}: {error}."
            ) from error

    @property
    def _shape(self) -> tuple[int, ...] | None:
        return None if isinstance(self._architecture, str) else self._architecture.shape

    @property
    def _examples(self) -> str:
        what = "examples" if self._shape else "images"
        return f"{what} (2, {', '.join(map(str, self._shape or self._image))})"


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


def take_over(model: nn.Module, made: nn.Module) -> None:
    """Copy the plain attributes of a module that was just made to the model, part by part.

    Where they refer to parts and values of that module (a bound method, a list of layers), the copies refer to the
    model's.
    """
    pairs = list(zip(model.modules(), made.modules(), strict=True))
    memo: dict[int, Any] = {id(new): old for old, new in pairs}
    for values in (nn.Module.parameters, nn.Module.buffers):
        memo |= {id(new): old for old, new in zip(values(model), values(made), strict=True)}
    for old, new in pairs:
        tied = [[one for one in _within(_plain(part)) if isinstance(one, _TIED)] for part in (old, new)]
        memo |= {id(theirs): ours for ours, theirs in zip(*tied)}
    for old, new in pairs:
        for name in _plain(old).keys() - _plain(new).keys():
            del old.__dict__[name]
        for name, value in _plain(new).items():
            try:
                old.__dict__[name] = copy.deepcopy(value, memo)
            except Exception:  # locks, files, other people's objects cannot be copied; these are new, too
                old.__dict__[name] = value


def refuse_hidden_tensors(model: nn.Module, name: str) -> None:
    """Raises if a plain attribute holds a tensor that is no parameter or buffer of the model."""
    known = {id(value) for value in (*model.parameters(), *model.buffers())}
    for path, part in model.named_modules():
        for attribute, value in _plain(part).items():
            if any(one.startswith(f"{attribute}_") for one in part._parameters):
                continue  # computed from them before every use, as weight_norm does
            if any(isinstance(one, torch.Tensor) and id(one) not in known for one in _within(value)):
                where = ".".join(filter(None, (name, path, attribute)))
                raise LearnerError(
                    f"{where} holds a tensor that is neither a parameter nor a buffer, so that captured steps and"
                    " checkpoints do not know it; register it with register_buffer and change it in place."
                )


def _plain(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in module.__dict__.items() if name not in _OF_TORCH}


def _within(value: Any) -> Iterator[Any]:
    """The value, or all that lies in it if it is a container or a module."""
    if isinstance(value, nn.Module):
        value = [*value.parameters(), *value.buffers()]
    elif isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset | deque):
        yield value
        return
    for one in value:
        yield from _within(one)
