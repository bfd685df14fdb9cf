"""`ModuleFactory`: a function or class of the user's that makes torch modules, which a recipe of ours trains."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memfluence.errors import LearnerError
from memfluence.learners.identity import called, identity

if TYPE_CHECKING:
    from torch import nn

_GIVEN = {"in_channels": "in_channels", "n_classes": "n_classes", "num_classes": "n_classes"}


@dataclass(frozen=True)
class ModuleFactory:
    """A factory is called with `in_channels` and `n_classes` (or `num_classes`) if it has parameters of these names.

    All other parameters are options: they keep their defaults, or are given by `settings`.
    """

    factory: Callable[..., Any]
    covered: str | None = None  # a module whose source is part of the identity already
    shape: tuple[int, ...] | None = None  # of one example, where it is no picture; the data say it, no part of identity

    def __post_init__(self) -> None:
        factory: Any = self.factory
        torch = sys.modules.get("torch")  # who has a module has loaded it
        if torch is not None and isinstance(factory, torch.nn.Module):
            raise LearnerError(
                f"{type(factory).__name__} is one module, but every trial begins with a new one; give the class or a"
                " function that makes it."
            )
        if not callable(factory) or hasattr(factory, "fit"):
            raise LearnerError(
                "a recipe trains torch modules that a function or class makes; got an object of type"
                f" {type(factory).__name__}."
            )

    @property
    def name(self) -> str:
        return called(self.factory, "network")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The parameters that `settings` reach."""
        return {name: one for name, one in self._parameters().items() if name not in _GIVEN}

    def _parameters(self) -> dict[str, inspect.Parameter]:
        try:
            found = inspect.signature(self.factory, eval_str=True).parameters
        except Exception:  # written in C, or annotations that name what is not there
            try:
                found = inspect.signature(self.factory).parameters
            except (TypeError, ValueError):
                return {}
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {name: one for name, one in found.items() if one.kind in named}

    def describe(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Identity of the factory and of its options, which may be any objects: "factory", "options"."""
        found = identity("made_by", {"factory": self.factory, "options": dict(options)}, self.covered)
        return {**found.pop("made_by"), **found}

    def build(self, in_channels: int, n_classes: int, options: Mapping[str, Any]) -> "nn.Module":
        """A new module, on the CPU; what cannot be made is the learner's fault, whatever the trial."""
        from torch import nn

        values = {"in_channels": in_channels, "n_classes": n_classes}
        given = {name: values[_GIVEN[name]] for name in self._parameters() if name in _GIVEN}
        try:
            made = self.factory(**given, **options)
        except Exception as error:  # other people's code
            called = ", ".join(f"{name}={value!r}" for name, value in (given | dict(options)).items())
            raise LearnerError(
                f"{self.name}({called}) raised {type(error).__name__}: {error}; a factory is given in_channels and"
                " n_classes by these names, and what else it needs by `settings`."
            ) from error
        if not isinstance(made, nn.Module):
            raise LearnerError(
                f"{self.name} must make a torch.nn.Module for a recipe to train; got an object of type"
                f" {type(made).__name__}."
            )
        return made
