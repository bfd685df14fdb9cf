"""Learners by name, from a file or module, or from an object: `resolve`."""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners._code import file_sha256
from memfluence.learners._loading import is_file, load
from memfluence.learners.estimator import EstimatorLearner
from memfluence.learners.function import FunctionLearner
from memfluence.learners.networks import from_factory, from_preset
from memfluence.learners.protocol import Checkpoints, Learner, Resumable, described_before
from memfluence.learners.recipes import LEARNER_PRESETS
from memfluence.learners.settings import known_or_error, parse_literals, parse_settings
from memfluence.records import Failure, Outcome, PartWay, Trial

__all__ = ["BUILTIN", "SourcedLearner", "built_in", "resolve"]

# Name -> where its class is; imported when it is asked for.
BUILTIN: dict[str, str] = {"mlp": "memfluence.learners.mlp:MLP"}

_EXPECTED = (
    "a scikit-learn classifier (an object or class with fit and predict), a function train(x, y, seed) -> predict,"
    " a factory of torch modules with a recipe (net.py:Net@fast), or a memfluence Learner"
)


def resolve(learner: Any = "mlp", settings: Mapping[str, Any] | None = None) -> Learner:
    """The learner that a user means.

    `learner` is a built-in name ("mlp"), "module:attribute" or "file.py:attribute", or an object: a `Learner`, a
    scikit-learn classifier (or its class), or a function `train(x, y, seed) -> predict`. "file.py:Net@fast" is what
    `Net` makes, a torch module, trained by the recipe `fast`: see `network`. `settings` override settings of a built-in
    learner or recipe, options of an architecture, or parameters of an estimator; text is read by the setting's type.

    What comes from text can be pickled: it is resolved anew where it is unpickled.

    A run goes on with the same learner alone. A built-in one is its settings. One from a file or module is the content
    of that file, wherever it lies, and the attribute's name; not part of it are other files that it imports or reads,
    the environment, and the versions of installed packages (which run.json has). One given as an object is what
    `EstimatorLearner` and `FunctionLearner` say.
    """
    if not isinstance(learner, str):
        return _from_object(learner, settings or {}, f"an object of type {type(learner).__name__}")
    where, colon, attribute = learner.rpartition(":")
    if colon and not (where and attribute):
        raise LearnerError(f"a learner from code is module:attribute or file.py:attribute; got {learner!r}.")
    if colon:
        return _from_source(where, attribute, settings or {})
    if is_file(learner):
        raise LearnerError(f"say which attribute of the file is the learner: {learner}:{_example(load(learner))}.")
    if learner in BUILTIN:
        module, _, name = BUILTIN[learner].partition(":")
        return _from_object(getattr(importlib.import_module(module), name), settings or {}, learner)
    known_or_error(
        learner,
        built_in(),
        "there is no built-in learner",
        "One of your own is module:attribute or file.py:attribute; built in:",
    )
    return from_preset(learner, settings or {})


def built_in() -> set[str]:
    """The names that mean no code but ours."""
    return {*BUILTIN, *LEARNER_PRESETS, *(name.partition("@")[0] for name in LEARNER_PRESETS)}


@dataclass(frozen=True)
class SourcedLearner:
    """A learner from a file or module: its identity holds the hash of that source; pickled, it is its origin."""

    learner: Learner
    where: str  # module name or absolute path
    attribute: str
    settings: Mapping[str, Any]
    sha256: str | None

    @property
    def name(self) -> str:
        return self.attribute.rpartition(".")[2]

    def describe(self) -> dict[str, Any]:
        origin = {"name": self.name, "attribute": self.attribute, "source_sha256": self.sha256}
        return self.learner.describe() | origin

    @property
    def described_before(self) -> Mapping[str, Any]:
        return described_before(self.learner)

    def group_size(self, dataset: Dataset, device: str) -> int:
        return self.learner.group_size(dataset, device)

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        return self.learner.train(dataset, trials, record=record, device=device)

    def resuming(self, checkpoints: Checkpoints | None, report: Callable[[PartWay], None]) -> Learner:
        if not isinstance(self.learner, Resumable):
            return self
        return dataclasses.replace(self, learner=self.learner.resuming(checkpoints, report))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reload, (self.where, self.attribute, dict(self.settings), self.sha256)


def _reload(where: str, attribute: str, settings: Mapping[str, Any], sha256: str | None) -> "SourcedLearner":
    learner = _from_source(where, attribute, settings)
    if learner.sha256 != sha256:
        raise LearnerError(f"{where} has changed since the run was started; start it again.")
    return learner


def _from_source(where: str, attribute: str, settings: Mapping[str, Any]) -> SourcedLearner:
    module = load(where)
    name, at, recipe = attribute.partition("@")
    try:
        found = reduce(getattr, name.split("."), module)
    except AttributeError:
        known_or_error(name, _candidates(module), f"{where} has no attribute", "What could be a learner in it:")
        raise
    sha256 = file_sha256(getattr(module, "__file__", None))
    covered = module.__name__ if sha256 else None
    learner: Learner
    if at:
        learner = from_factory(found, recipe, settings, covered)
    else:
        learner = _from_object(found, settings, f"{where}:{attribute}", covered)
    origin = str(Path(where).expanduser().resolve()) if is_file(where) else where
    return SourcedLearner(learner, origin, attribute, settings, sha256)


def _from_object(found: Any, settings: Mapping[str, Any], origin: str, covered: str | None = None) -> Learner:
    if isinstance(found, type) and (_is_estimator(found) or _is_learner_class(found)):
        try:
            found = found()
        except TypeError as error:
            raise LearnerError(
                f"{origin} is a class that cannot be made without arguments ({error}); name an object instead."
            ) from error
    if isinstance(found, Learner):
        return _with_settings(found, settings, origin)
    if _is_estimator(found):
        return EstimatorLearner(_with_parameters(found, settings, origin), covered)
    if isinstance(found, type) and callable(getattr(found, "forward", None)):
        raise LearnerError(
            f"{origin} is a torch module, which needs a recipe: file.py:{found.__name__}@fast, or"
            f" memfluence.network({found.__name__}, recipe='fast') in Python."
        )
    if callable(getattr(type(found), "forward", None)):
        raise LearnerError(
            f"{origin} is one torch module, but every trial begins with a new one; give a function that makes it, with"
            " a recipe: file.py:function@fast, or memfluence.network(function, recipe='fast') in Python."
        )
    if callable(found) and not isinstance(found, type):
        if settings:
            raise LearnerError(f"{origin} is a function, which takes no settings; got {', '.join(settings)}.")
        return FunctionLearner(found, covered)
    raise LearnerError(f"a learner is {_EXPECTED}; {origin} is none of them (its type is {type(found).__name__}).")


def _with_settings(learner: Any, settings: Mapping[str, Any], origin: str) -> Learner:
    """A learner that is a dataclass with some fields changed."""
    if settings and not dataclasses.is_dataclass(learner):
        raise LearnerError(f"{origin} takes no settings; got {', '.join(settings)}.")
    changed: Learner = dataclasses.replace(learner, **parse_settings(type(learner), settings)) if settings else learner
    return changed


def _with_parameters(estimator: Any, settings: Mapping[str, Any], origin: str) -> Any:
    """A copy of an estimator with some parameters changed."""
    if not settings:
        return estimator
    if not hasattr(estimator, "get_params"):
        raise LearnerError(f"{origin} takes no settings (it has no get_params); got {', '.join(settings)}.")
    from sklearn.base import clone

    for setting in settings:
        known_or_error(setting, estimator.get_params(deep=True), f"{origin} has no parameter", "Its parameters are")
    return clone(estimator).set_params(**parse_literals(settings))


def _is_learner_class(found: type) -> bool:
    return all(callable(getattr(found, method, None)) for method in ("describe", "group_size", "train"))


def _is_estimator(found: Any) -> bool:
    return hasattr(found, "fit") and hasattr(found, "predict")


def _candidates(module: ModuleType) -> list[str]:
    """Names in a module that could be learners; of functions and classes only those defined in it."""
    names = []
    for name, found in vars(module).items():
        defined_here = getattr(found, "__module__", None) == module.__name__
        is_object = not isinstance(found, type) and (_is_estimator(found) or isinstance(found, Learner))
        if not name.startswith("_") and (is_object or (callable(found) and defined_here)):
            names.append(name)
    return names


def _example(module: ModuleType) -> str:
    return next(iter(_candidates(module)), "ATTRIBUTE")
