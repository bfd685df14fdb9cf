"""Options of training: what the trials are and how they are run, each with its default and its help beside it.

The signature of `memfluence.run`, the options of `memfluence run`, of `plan` and of experiments follow from these
fields (`taking` here, `options_of` in the command line), so a new option is one field and its use. `reproduce` names
those that it has. Help and messages name an option as Python does, `keep` or `engine='ray'`; the command line shows
--keep and --engine ray.
"""

import inspect
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.engines.progress import ProgressListener

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


def settings_of(pairs: Iterable[str] | None) -> dict[str, str]:
    """['epochs=30'] -> {'epochs': '30'}."""
    found = {}
    for pair in pairs or ():
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
    class_names: Sequence[str] | str | Path | None = option(
        None,
        "What the classes are called: a file of one name a line, in the sorted order of the labels.",
        metavar="FILE",
        shown="as the data say",
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
    record: Collection[str] | None = option(
        None,
        "Beside correctness: prediction, margin, logit, test_margin (test examples alone), or several with commas;"
        " none.",
        read=names,
        shown="margin, if the learner gives scores and all of them take 268 MB at most",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineOptions:
    """What a machine gives to the trials."""

    workers: int | None = option(
        None, "Worker processes, or tasks on the cluster at a time.", text=int, shown="1; ray: as the cluster has room"
    )
    device: str = option("auto", "auto, cpu or cuda.")


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineOptions(MachineOptions):
    """How trials are run. No result depends on it."""

    engine: str | None = option(
        None,
        "local, processes or ray. Code of your own runs in processes on the command line, with one worker too.",
        shown="by `workers`",
    )
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
    retry_failed: bool = option(False, "Run just the trials that failed; all, if none succeeded.", text=bool)
    keep_going: bool = option(False, "Go on even if the first 20 trials fail alike.", text=bool)
    checkpoint_every: float = option(
        60.0,
        "Keep a long trial's state so often, to go on within it; at Ctrl-C as well. 0: never.",
        text=float,
        metavar="SECONDS",
        shown="60",
    )
    trial_timeout: float | None = option(
        None,
        "Fail a trial that takes longer, and end the worker process that it is in.",
        text=float,
        metavar="SECONDS",
        shown="never",
    )
    deadline: float | None = option(None, "The time of `time.monotonic` at which training stops.", text=None)
    progress: "bool | ProgressListener" = option(True, "No progress.", text=bool, read=operator.not_, flag="--quiet")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunOptions(EngineOptions, TrialOptions):
    """All that `run` takes."""

    until: str | None = option(
        None,
        "Stop by itself at stderr=0.03 (or stderr=0.03:median), jaccard=0.7 or pairs=fdr:0.1,share:0.9; `trials` is the"
        " most.",
        metavar="TARGET",
        shown="after all trials",
    )

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
    pilot_seconds: float | None = option(
        None,
        "Stop the pilot of a network after so much training, and reckon on from how far it is.",
        text=float,
        metavar="SECONDS",
        shown="a whole trial",
    )
    price: float | None = option(
        None, "Of an hour of a worker (of a GPU, say), in any currency: what all trials cost.", text=float
    )


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


# ---- the part of a run that a process is to do

COUNT = "MEMFLUENCE_SHARDS"  # how many parts, where the scheduler does not say


@dataclass(frozen=True)
class _Scheduler:
    """The variables in which a scheduler tells a task its part of the whole: a number, and a count or a range."""

    name: str
    index: str  # number of this task
    base: int = 0  # number of the first task of all
    count: str = ""  # how many tasks there are
    range: tuple[str, ...] = ()  # numbers of the first and the last task, and the step between them


SCHEDULERS = (
    _Scheduler(
        "Slurm array",
        "SLURM_ARRAY_TASK_ID",
        count="SLURM_ARRAY_TASK_COUNT",
        range=("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP"),
    ),
    _Scheduler("Grid Engine array", "SGE_TASK_ID", 1, range=("SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE")),
    _Scheduler("LSF array", "LSB_JOBINDEX", 1, range=("", "LSB_JOBINDEX_END", "LSB_JOBINDEX_STEP")),
    _Scheduler("PBS array", "PBS_ARRAY_INDEX"),
    _Scheduler("Kubernetes indexed Job", "JOB_COMPLETION_INDEX"),
    _Scheduler("GNU parallel", "PARALLEL_SEQ", 1),
    _Scheduler("Open MPI", "OMPI_COMM_WORLD_RANK", count="OMPI_COMM_WORLD_SIZE"),
    _Scheduler("torchrun", "RANK", count="WORLD_SIZE"),
)
_NOT_OF_AN_ARRAY = {"SGE_TASK_ID": "undefined", "LSB_JOBINDEX": "0"}  # they are set in every job


def parse_shard(shard: str | tuple[int, int]) -> tuple[int, int]:
    """'i/N' (or the pair) -> (i, N) with 0 <= i < N; 'auto' takes it from the environment."""
    if shard == "auto":
        return shard_of_job(os.environ)
    match = re.fullmatch("([0-9]+)/([0-9]+)", "/".join(map(str, shard)) if isinstance(shard, tuple) else shard)
    if not match or not int(match[1]) < int(match[2]):
        raise InputError(
            f"The `shard` parameter must read i/N with 0 <= i < N, such as 0/3, or auto. Got {shard!r} instead."
        )
    return int(match[1]), int(match[2])


def shard_of_job(environment: Mapping[str, str]) -> tuple[int, int]:
    """(i, N) of the job array that this process belongs to; exactly one scheduler must have left its variables."""
    found = [one for one in SCHEDULERS if environment.get(one.index, "") not in ("", _NOT_OF_AN_ARRAY.get(one.index))]
    if not found:
        known = ", ".join(one.index for one in SCHEDULERS)
        raise InputError(f"`shard='auto'` found no job array ({known} are not set); give `shard='i/N'`.")
    if len(found) > 1:
        names = ", ".join(f"{one.index} ({one.name})" for one in found)
        raise InputError(f"`shard='auto'` found the variables of several schedulers: {names}; give `shard='i/N'`.")
    return _part(found[0], environment)


def _part(job: _Scheduler, environment: Mapping[str, str]) -> tuple[int, int]:
    """With `COUNT` set, tasks are numbered from `base` on, so that some of them can be submitted again."""

    def number(name: str) -> int:
        value = environment.get(name, "")
        if not re.fullmatch("[0-9]+", value):
            raise InputError(
                f"`shard='auto'` needs a number in {name} ({job.name}), which"
                f" {f'is {value!r}' if value else 'is not set'}; set it, or give `shard='i/N'`."
            )
        return int(value)

    index, step = number(job.index) - job.base, 1
    if environment.get(COUNT) or not (job.count or job.range):
        count = number(COUNT)
    elif job.range:
        first = number(job.range[0]) if job.range[0] else job.base
        step = max(1, number(job.range[2]))
        count = (number(job.range[1]) - first) // step + 1
        index = number(job.index) - first
        if job.count and number(job.count) != count:
            raise InputError(
                f"`shard='auto'` needs an array without gaps, and this {job.name} has {number(job.count)} of {count}"
                f" tasks; set {COUNT} to the number of parts of the whole run, or give `shard='i/N'`."
            )
    else:
        count = number(job.count)
    if index < 0 or index % step or not index // step < count:
        raise InputError(
            f"`shard='auto'` cannot place task {environment[job.index]} of the {job.name} among {count} part(s); check"
            " the array's range, or give `shard='i/N'`."
        )
    return index // step, count
