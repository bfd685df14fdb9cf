"""Engines run pending groups of trials into a store: here (`local`) or over worker processes (`processes`)."""

from collections.abc import Sequence

from memfluence.engines._threads import THREAD_VARIABLES, one_thread
from memfluence.engines.events import Emit, Event, SegmentWritten, TrialDone, TrialFailed, WorkerLost
from memfluence.engines.local import run_local
from memfluence.engines.processes import run_processes
from memfluence.engines.work import Group, Work, groups_of
from memfluence.errors import InputError

__all__ = [
    "ENGINES",
    "THREAD_VARIABLES",
    "Emit",
    "Event",
    "Group",
    "SegmentWritten",
    "TrialDone",
    "TrialFailed",
    "Work",
    "WorkerLost",
    "execute",
    "groups_of",
    "one_thread",
]

ENGINES = ("local", "processes", "ray")


def execute(engine: str, work: Work, groups: Sequence[Group], emit: Emit, *, workers: int) -> None:
    """Run `groups` on the named engine and return when all are stored."""
    if engine == "ray":
        raise InputError(
            "The ray engine is not in this version; use --engine processes, or --shard i/N on each machine."
        )
    if engine not in ENGINES:
        raise InputError(f"There is no engine {engine!r}; choose one of {', '.join(ENGINES)}.")
    if not groups:
        return
    if engine == "local":
        run_local(work, groups, emit)
    else:
        run_processes(work, groups, emit, workers=workers)
