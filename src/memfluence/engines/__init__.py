"""Engines run pending groups of trials into a store: here (`local`), over worker processes (`processes`) or on a Ray
cluster (`ray`)."""

from collections.abc import Sequence

from memfluence.engines._ray_cluster import connected, gpus_and_device, no_room, places, told_on_stderr
from memfluence.engines.environment import (
    THREAD_VARIABLES,
    interrupted_at,
    one_thread,
    one_thread_from_the_start,
    uninterrupted,
)
from memfluence.engines.events import Emit, Event, Note, SegmentWritten, TrialDone, TrialFailed, WorkerLost
from memfluence.engines.handouts import run_local, shared
from memfluence.engines.processes import run_processes
from memfluence.engines.ray import run_ray
from memfluence.engines.work import Group, Work, groups_of, installed_versions, trials_of
from memfluence.errors import InputError
from memfluence.records import PartWay

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
    "connected",
    "execute",
    "gpus_and_device",
    "groups_of",
    "installed_versions",
    "interrupted_at",
    "no_room",
    "one_thread",
    "one_thread_from_the_start",
    "places",
    "told_on_stderr",
    "trials_of",
    "uninterrupted",
]

ENGINES = ("local", "processes", "ray")


def choose(
    engine: str | None,
    workers: int | None,
    *,
    address: str | None = None,
    gpus: float | None = None,
    trial_timeout: float | None = None,
) -> str:
    """The engine to use: the one named, or the one that the number of workers and a limit for trials ask for."""
    name = engine or ("processes" if (workers or 1) > 1 or trial_timeout is not None else "local")
    if name not in ENGINES:
        raise InputError(f"There is no engine {name!r}; choose one of {', '.join(ENGINES)}.")
    if name == "local" and (workers or 1) > 1:
        raise InputError(f"The local engine has one worker. Got `workers={workers}`; use `engine='processes'`.")
    if name != "processes" and trial_timeout is not None:
        raise InputError(
            "`trial_timeout` is for worker processes of this machine; use `engine='processes'`, or leave it out."
        )
    if name != "ray" and (address is not None or gpus is not None):
        raise InputError("`address` and `gpus_per_worker` are for clusters; add `engine='ray'`, or leave them out.")
    return name


def execute(
    engine: str,
    work: Work,
    groups: Sequence[Group],
    emit: Emit,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float | None = None,
    deadline: float | None = None,
    trial_timeout: float | None = None,
) -> None:
    """Run `groups` on an engine that `choose` gave, and return when all are stored.

    At `deadline`, a time of `time.monotonic`, it stops as at Ctrl-C, in the middle of a trial too: what is complete is
    stored, trials that are part-way are checkpointed, and `DeadlineReached` is raised.
    """
    if not groups:
        return
    with shared(work, groups, emit, trains_here=engine == "local") as queue:
        if engine == "local":
            run_local(work, queue, emit, deadline=deadline)
        elif engine == "processes":
            run_processes(work, queue, emit, workers=workers or 1, deadline=deadline, trial_timeout=trial_timeout)
        else:
            run_ray(
                work,
                queue,
                emit,
                workers=workers,
                address=address,
                gpus_per_worker=gpus_per_worker,
                deadline=deadline,
            )
