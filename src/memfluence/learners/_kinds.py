"""Kinds of values that `identity` treats apart."""

import functools
import os
import random
import sys
from typing import Any

import numpy as np

from memfluence.learners._code import is_installed

__all__ = ["compiled_from", "is_circumstance", "is_tensor", "is_written", "parameters_of", "tensor_bytes", "wrapped_by"]

_CIRCUMSTANCES = (
    random.Random,
    np.random.RandomState,
    np.random.Generator,
    np.random.BitGenerator,
    type(os.environ),
)


def is_circumstance(value: Any) -> bool:
    """Whether the value says more about this process than about the learner: generators, the environment, a device."""
    torch = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(value, torch.device | torch.Generator)
    return of_torch or isinstance(value, _CIRCUMSTANCES)


def compiled_from(value: Any) -> Any:
    """The function or module that torch.compile was given; None for what it did not make.

    What it makes holds settings of this machine, which change nothing but speed.
    """
    if type(value).__name__ == "OptimizedModule":
        return getattr(value, "_orig_mod", None)
    return getattr(value, "__dict__", {}).get("_torchdynamo_orig_callable")


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_bytes(tensor: Any) -> bytes | None:
    """The content of a tensor of any type, on any device; None for sparse and other special ones."""
    import torch

    try:
        content: bytes = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):
        return None
    return content


def is_written(name: str, member: Any) -> bool:
    """Whether a member of a class is its author's, not bookkeeping of Python's."""
    special = name.startswith("__") and name.endswith("__")
    method = callable(member) or isinstance(member, staticmethod | classmethod | property)
    return (method or not special) and not name.startswith("_abc_")


def parameters_of(value: Any) -> dict[str, Any] | None:
    """The parameters of an object that follows scikit-learn's conventions; None for others."""
    try:
        parameters = value.get_params(deep=False)
        vars(value)
    except Exception:  # it has no such method, or another of that name
        return None
    return parameters if isinstance(parameters, dict) else None


def wrapped_by(value: Any) -> Any:
    """The function in a staticmethod, a cache, a compiler's wrapper; None for other objects."""
    if isinstance(value, functools.cached_property):
        return value.func
    try:
        wrapped = value.__wrapped__ if is_installed(str(type(value).__module__)) else None
    except Exception:  # objects that stand for others may raise anything
        return None
    return wrapped if callable(wrapped) else None
