"""What a module of the user's holds beside parameters and buffers: lists, counters, whatever its code sets on itself.

It starts anew with every trial, as the values do: a memory of examples that outlived its trial would show to the next
one what that leaves out. Tensors are refused there, because nothing but parameters and buffers goes to the device, into
a captured step and into a checkpoint.
"""

import copy
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from memfluence.errors import LearnerError

__all__ = ["refuse_hidden_tensors", "take_over"]

_OF_TORCH = frozenset(nn.Module().__dict__)  # values, submodules, hooks, the mode
_TIED = (types.FunctionType, weakref.ref)  # cannot be copied, and may hold on to the module that they were made for


def take_over(model: nn.Module, made: nn.Module) -> None:
    """Give each part of the model the plain attributes of the same part of one just made.

    What these say of parts and values of the new module (a bound method, a list of layers) is said of the model's.
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
            except (
                Exception
            ):  # locks, files, other people's objects: new already, and copied only for what they refer to
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
