"""Options of training: what the trials are and how they are run, each with its default and its help beside it.

The signature of `memfluence.run`, the options of `memfluence run` and of every other command that trains models follow
from these fields (`taking` here, `with_options` in the command line), so a new option is one field and its use. Help
and messages name an option as Python does, `keep` or `engine='ray'`; the command line shows --keep and --engine ray.
"""

import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.engines.progress import ProgressListener

__all__ = [
    "EngineOptions",
    "MachineOptions",
    "PlanOptions",
    "RunOptions",
    "TrialOptions",
    "option",
    "run_options",
    "same_as",
    "settings_of",
    "taking",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def option(
    default: T,
    help: str,
    *,
    text: Any = str,
    read: Callable[[Any], Any] | None = None,
    flag: str | None = None,
    metavar: str | None = None,
    shown: str | None = None,
) -> T:
    """A field that a command line can fill.

    `text` is the type of what is typed there (None: it cannot be given there) and `read` makes the value of it; `flag`
    holds the option's names where they are not that of the field; `shown` is the default in words, where None stands
    for it.
    """
    typed = {"help": help, "text": text, "read": read, "flag": flag, "metavar": metavar, "shown": shown}
    found: T = field(default=default, metadata=typed)
    return found


def same_as(options: type, name: str, default: T) -> T:
    """A field like one of another dataclass, with a default of its own."""
    there: Any = next(one for one in fields(options) if one.name == name)
    found: T = field(default=default, metadata=there.metadata)
    return found


def fractions(text: str) -> list[float]:
    """'0.5,0.7' -> [0.5, 0.7]."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"The `keep` parameter must be fractions, such as 0.5,0.7. Got {text!r} instead.") from None


def names(text: str) -> list[str]:
    """'margin, logit' -> ['margin', 'logit']."""
    return [part.strip() for part in text.split(",") if part.strip()]


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """['epochs=30'] -> {'epochs': '30'}."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"Settings read NAME=VALUE, such as epochs=30. Got {pair!r} instead.")
        found[name.strip()] = value.strip()
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialOptions:
    """What the trials are."""

    dataset: Any = field(
        kw_only=False,
        metadata={
            "help": "digits, longtail, csv:FILE, npz:FILE, mnist:DIR, cifar10:DIR, cifar100:DIR, folder:DIR,"
            " imagenet:DIR or hf:NAME."
        },
    )
    learner: Any = option(
        "mlp",
        "Built-in name, or module:attribute or file.py:attribute of a scikit-learn estimator or of a function"
        " train(x, y, seed) -> predict; file.py:Net@fast is a torch module with a recipe.",
    )
    settings: Mapping[str, Any] | None = option(
        None,
        "Setting of a built-in learner or recipe, option of a network, or parameter of an estimator; repeatable.",
        text=list[str],
        read=settings_of,
        flag="--set",
        metavar="NAME=VALUE",
    )
    trials: int | None = option(None, "How many models to train.", text=int, shown="2000")
    keep: float | Iterable[float] | None = option(
        None, "Fraction of the training examples kept; or several: 0.5,0.7.", read=fractions, shown="0.7"
    )
    design: str | None = option(
        None,
        "fixed, balanced[:block], bernoulli, lemma, repeats[:models per mask], uniform[:smallest subset] or"
        " explicit:FILE.",
        shown="fixed; lemma with `groups`",
    )
    masks: Any = option(None, "Of the explicit design: which examples each trial keeps, (trials, n_train).", text=None)
    groups: Any = option(
        None,
        "Keep or leave out whole groups: a value per training example, 'class', or an attribute of the data.",
        metavar="FILE.npy|NAME",
    )
    seed: int = option(0, "Root of all randomness.", text=int)
    record: Collection[str] = option(
        (), "Beside correctness: prediction, margin, logit, or several with commas.", read=names
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineOptions:
    """What a machine gives to the trials."""

    workers: int | None = option(
        None,
        "Worker processes, or tasks on the cluster at a time.",
        text=int,
        shown="1; ray: as the cluster has room",
    )
    device: str = option("auto", "auto, cpu or cuda.")


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineOptions(MachineOptions):
    """How trials are run. No result depends on it."""

    engine: str | None = option(None, "local, processes or ray.", shown="by `workers`")
    address: str | None = option(
        None, "Of the Ray cluster.", metavar="HOST:PORT", shown="the one that this machine belongs to"
    )
    gpus_per_worker: float | None = option(
        None,
        "With `engine='ray'`: such as 0.5 for two to a GPU.",
        text=float,
        metavar="GPUS",
        shown="1 with `device='cuda'`, otherwise 0",
    )
    shard: str | tuple[int, int] | None = option(
        None, "Run only this part of the groups; auto: as the job array's variables say.", metavar="i/N|auto"
    )
    retry_failed: bool = option(False, "Run just the trials that failed.", text=bool)
    checkpoint_every: float = option(
        60.0,
        "Keep a long trial's state so often, to go on within it; at Ctrl-C as well. 0: never.",
        text=float,
        metavar="SECONDS",
        shown="60",
    )
    deadline: float | None = option(None, "The time of `time.monotonic` at which training stops.", text=None)
    progress: "bool | ProgressListener" = option(True, "No progress.", text=bool, read=operator.not_, flag="--quiet")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunOptions(EngineOptions, TrialOptions):
    """All that `run` takes."""

    out: str | Path | None = option(
        None,
        "Directory of the run, or a URI such as s3://bucket/run.",
        metavar="RUN",
        shown="runs/DATASET-LEARNER",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanOptions(MachineOptions, TrialOptions):
    """All that `plan` takes."""

    pilot: bool = option(True, "Train a few models to learn how long one takes.", text=bool, flag="--pilot/--no-pilot")


def run_options(choices: Any, **more: Any) -> RunOptions:
    """The options of a run that these choices of another kind have, and more."""
    shared = {one.name for one in fields(RunOptions)} & {one.name for one in fields(choices)}
    return RunOptions(**{name: getattr(choices, name) for name in shared} | more)


def taking(options: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Give a function of one dataclass the dataclass's own signature, which type checkers, editors and `help` show."""

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        @wraps(function)
        def taken(*given: P.args, **chosen: P.kwargs) -> R:
            return function(options(*given, **chosen))

        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(options).replace(return_annotation=returned)
        taken.__signature__ = signature  # type: ignore[attr-defined]
        return taken

    return decorate
