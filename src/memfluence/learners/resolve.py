"""Learners by name, from a file or module, or from an object: `resolve`.

After a run was begun, its learner is recognized by its description (`up_to_date`), made again from it (`described`), or
asked for its representations (`represent`).
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, Task, as_numbers
from memfluence.errors import LearnerError, MemfluenceWarning, needs_torch, shortened
from memfluence.learners.estimator import EstimatorLearner
from memfluence.learners.factory import ModuleFactory
from memfluence.learners.function import FunctionLearner
from memfluence.learners.identity import FILE_MODULE_PREFIX, file_sha256, may_be_the_same
from memfluence.learners.network import from_factory, from_preset
from memfluence.learners.protocol import Checkpoints, Learner, Representation, Representing, Resumable
from memfluence.learners.recipes import preset_names
from memfluence.learners.settings import known_or_error, parse_literals, parse_settings
from memfluence.records import Failure, Outcome, PartWay, Trial, canonical_json

# Name -> where its class is; imported when it is asked for.
BUILTIN: dict[str, str] = {
    "mlp": "memfluence.learners.mlp:MLP",
}

_EXPECTED = (
    "a scikit-learn classifier or regressor (an object or class with fit and predict), a function train(x, y, seed)"
    " that returns predict(x) or score(x, y), a factory of torch modules with a recipe (net.py:Net@fast), or a"
    " memfluence Learner"
)


_left_in: dict[str, str] = {}  # by the name of a module: the directory into which it changed when it was loaded


def resolve(learner: Any = "mlp", settings: Mapping[str, Any] | None = None) -> Learner:
    """The learner that a user means.

    `learner` is a built-in name ("mlp"), "module:attribute" or "file.py:attribute", or an object: a `Learner`, a
    scikit-learn classifier or regressor (or its class), or a function `train(x, y, seed)` that returns `predict(x)` or
    an outcome of its own, `score(x, y)`. "file.py:Net@fast" is what
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
        _check_torch(learner)
        module, _, name = BUILTIN[learner].partition(":")
        return _from_object(getattr(importlib.import_module(module), name), settings or {}, learner)
    known_or_error(
        learner,
        built_in(),
        "there is no built-in learner",
        "One of your own is module:attribute or file.py:attribute; built in:",
    )
    _check_torch(learner)
    return from_preset(preset_names()[learner], settings or {})


def _check_torch(learner: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise needs_torch(f"The learner {learner}")


def built_in() -> set[str]:
    """The names that mean no code but ours."""
    return {*BUILTIN, *preset_names()}


@dataclass(frozen=True)
class SourcedLearner:
    """A learner from a file or module: the source's hash is part of its identity, and it is pickled as its origin.

    It may change the current directory, when it is loaded or in each trial. That is so while it trains; whoever calls
    it, and the next trials, find the directory as it was.
    """

    learner: Learner
    where: str  # module name or absolute path
    attribute: str
    settings: Mapping[str, Any]
    sha256: str | None
    directory: str | None = None  # where loading it left the process, if that is another one

    @property
    def name(self) -> str:
        return self.attribute.rpartition(".")[2]

    @property
    def text(self) -> str:
        return str(getattr(self.learner, "text", ""))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tasks_of(self.learner)

    @property
    def takes_weights(self) -> bool:
        return bool(getattr(self.learner, "takes_weights", False))

    def describe(self) -> dict[str, Any]:
        origin = {"name": self.name, "attribute": self.attribute, "source_sha256": self.sha256}
        return self.learner.describe() | origin

    @property
    def described_before(self) -> Mapping[str, Any]:
        return getattr(self.learner, "described_before", {})

    def group_size(self, dataset: Dataset, device: str) -> int:
        return self.learner.group_size(dataset, device)

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        with chdir(self.directory or os.curdir):
            yield from self.learner.train(dataset, trials, record=record, device=device)

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
        found: Any = reduce(getattr, name.split("."), module)
    except AttributeError:
        known_or_error(name, _candidates(module), f"{where} has no attribute", "What could be a learner in it:")
        raise
    sha256 = file_sha256(getattr(module, "__file__", None))
    covered = module.__name__ if sha256 else None
    learner: Learner
    if at:
        learner = from_factory(ModuleFactory(found, covered), recipe, settings)
    else:
        learner = _from_object(found, settings, f"{where}:{attribute}", covered)
    origin = str(Path(where).expanduser().resolve()) if is_file(where) else where
    return SourcedLearner(learner, origin, attribute, settings, sha256, _left_in.get(module.__name__))


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
        own = dict(settings)
        has_one = hasattr(found, "get_params") and "outcome" in found.get_params()
        how = None if has_one else own.pop("outcome", None)
        return EstimatorLearner(_with_parameters(found, own, origin), covered, how)
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


def is_file(where: str) -> bool:
    """Whether a learner's origin names a file rather than a module."""
    return where.endswith(".py") or "/" in where


def load(where: str) -> ModuleType:
    """The module of a file (`models/net.py`) or a module name (`models.net`), which may lie in the current directory.

    A file is loaded under a name made from its path and content, so that every process that loads it has the same
    module. Its directory can be imported from, as when it is run as a script. The current directory can be when it is
    where the module lies; an installed module does not open it to whatever else lies there.
    """
    with chdir(os.curdir):
        before = Path.cwd()
        module = _load_file(Path(where)) if is_file(where) else _load_module(where)
        if (left_in := Path.cwd()) != before:  # which is so the first time alone
            _left_in[module.__name__] = str(left_in)
    return module


def _load_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    try:
        source = path.read_bytes()
    except OSError as error:
        raise LearnerError(
            f"the learner's file {path} cannot be read ({error.strerror}); give a path from {Path.cwd()} or a full one."
        ) from error
    name = FILE_MODULE_PREFIX + hashlib.sha256(os.fsencode(path) + b"\0" + source).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # before it runs: classes defined in it look themselves up
    _make_importable(path.parent)
    try:
        # Compiled from the bytes that were hashed; the import system might take an older cached compilation.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise LearnerError(_what_failed(error, str(path))) from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0]) is None:
            _make_importable(Path.cwd())
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise LearnerError(_what_failed(error, name)) from error
        raise LearnerError(
            f"there is no module {name!r} here; install it, run from its directory, or name its file ({name}.py:...)."
        ) from error
    except (Exception, SystemExit) as error:
        raise LearnerError(_what_failed(error, name)) from error


def _make_importable(directory: Path) -> None:
    """At the end of the path, so that nothing installed is hidden."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _what_failed(error: BaseException, where: str) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename or where}, line {error.lineno}: {error.msg}; correct the file."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
    line = f", line {lines[-1]}" if lines else ""
    return f"{where}{line} raised {type(error).__name__}: {error} while it was loaded; run it with python to see more."


def tasks_of(learner: Learner) -> tuple[Task, ...]:
    """What a learner can be trained for; classes, unless it says more."""
    found: tuple[Task, ...] = getattr(learner, "tasks", ("classes",))
    return found


def data_for(learner: Learner, data: Dataset) -> Dataset:
    """The data as the learner takes them: for a regressor, whole numbers are targets too. Refuses what it cannot do."""
    tasks = tasks_of(learner)
    if data.task in tasks:
        return data
    if "numbers" in tasks and data.task in ("classes", "labels"):
        return as_numbers(data)
    own = "a function train(x, y, seed) that returns score(x, y)"
    if data.task == "numbers":
        of_csv = ", or add task=classes to the dataset's name" * data.name.startswith("csv:")
        raise LearnerError(
            f"{data.name}: this looks like a regression (a label is {np.ravel(data.labels('train'))[0]:g}), and"
            f" {learner.name} predicts classes: give a regressor (such as RandomForestRegressor), or {own}{of_csv}."
        )
    what = {"labels": "several labels an example", "sequences": "sequences of labels", "any": "no labels"}
    ways = own if data.task == "any" else f"a scikit-learn classifier that takes them, or {own}"
    raise LearnerError(f"{data.name} has {what.get(data.task, 'classes')}, and {learner.name} takes none: give {ways}.")


def up_to_date(learner: Learner) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """A function that gives an older description of the learner as this version writes it, so that old runs go on.

    A learner may have `described_before`: for parts of its description the settings that came later, with the values
    that were meant before. And an identity of the first version is compared with one of this version in what both say.
    """

    def changed(before: Mapping[str, Any]) -> Mapping[str, Any]:
        found = dict(before)
        for part, settings in getattr(learner, "described_before", {}).items():
            if isinstance(found.get(part), Mapping):
                found[part] = {**settings, **found[part]}
        now: dict[str, Any] = json.loads(canonical_json(learner.describe()))
        if "identity" in found or "identity" not in now or not may_be_the_same(found, now):
            return found
        warnings.warn(
            f"the run was begun by an older memfluence, which looked at other parts of {learner.name}; what both"
            " versions tell of it is the same, so the run goes on.",
            MemfluenceWarning,
            stacklevel=2,
        )
        return now

    return changed


def described(description: Mapping[str, Any] | None) -> Learner:
    """The built-in learner that describes itself so; others have to be given again by their owner.

    A description comes with a run, perhaps from someone else: a file or module that it names is not loaded.
    """
    if description is None:
        raise LearnerError("the trials were imported, and nobody knows their learner; name it with `learner`.")
    name = str(description.get("name"))
    found = None
    if name in built_in():  # anything else could be code, which is run only where the user names it
        parts = (description.get(part, {}) for part in ("settings", "recipe", "options"))
        with suppress(LearnerError):
            settings = [one for part in parts if isinstance(part, Mapping) for one in part.items()]
            found = resolve(name, dict(settings))
    if found is None or canonical_json(found.describe()) != canonical_json(description):
        raise LearnerError(
            f"the learner {shortened(name)} is not built in, or has changed, so it cannot be made again from the run;"
            " give it again with `learner`."
        )
    return found


def represent(
    learner: Learner,
    dataset: Dataset,
    trial: Trial,
    *,
    device: str,
    checkpoints: Checkpoints | None = None,
    report: Callable[[PartWay], None] = lambda part: None,
) -> Representation:
    """The inputs of the last layer of the trial's model; only networks have one.

    Learners that can go on within a trial use the checkpoints and report how far they are.
    """
    inner = learner.learner if isinstance(learner, SourcedLearner) else learner
    if not isinstance(inner, Representing):
        raise LearnerError(
            f"{learner.name} has no last layer whose inputs could be taken; this needs a network: mlp, a built-in one,"
            " or a torch module with a recipe (file.py:Net@fast)."
        )
    going_on = inner.resuming(checkpoints, report) if isinstance(inner, Resumable) else inner
    assert isinstance(going_on, Representing)
    return going_on.represent(dataset, trial, device=device)
