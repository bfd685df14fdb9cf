"""Engines run pending groups of trials into a store: here (`local`) or over worker processes (`processes`)."""

from collections.abc import Sequence

from memfluence.engines._signals import uninterrupted
from memfluence.engines._threads import THREAD_VARIABLES, one_thread
from memfluence.engines.events import Emit, Event, Note, PartWay, SegmentWritten, TrialDone, TrialFailed, WorkerLost
from memfluence.engines.local import run_local
from memfluence.engines.processes import run_processes
from memfluence.engines.work import Group, Work, groups_of, trials_of
from memfluence.errors import InputError

__all__ = [
    "ENGINES",
    "THREAD_VARIABLES",
    "Emit",
    "Event",
    "Group",
    "Note",
    "PartWay",
    "SegmentWritten",
    "TrialDone",
    "TrialFailed",
    "Work",
    "WorkerLost",
    "choose",
    "execute",
    "groups_of",
    "one_thread",
    "trials_of",
    "uninterrupted",
]

ENGINES = ("local", "processes")


def choose(engine: str | None, workers: int) -> str:
    """The engine to use: the one named, or the one that the number of workers asks for."""
    name = engine or ("processes" if workers > 1 else "local")
    if name == "ray":
        raise InputError(
            "The ray engine is not in this version; use --engine processes, or --shard i/N on each machine."
        )
    if name not in ENGINES:
        raise InputError(f"There is no engine {name!r}; choose one of {', '.join(ENGINES)}.")
    if name == "local" and workers > 1:
        raise InputError(f"The local engine has one worker. Got workers={workers}; use --engine processes.")
    return name


def execute(engine: str, work: Work, groups: Sequence[Group], emit: Emit, *, workers: int) -> None:
    """Run `groups` on an engine that `choose` gave, and return when all are stored."""
    if not groups:
        return
    if engine == "local":
        run_local(work, groups, emit)
    else:
        run_processes(work, groups, emit, workers=workers)
