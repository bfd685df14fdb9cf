"""`--shard`: which part of a run this process is to do, as it is told or as its job array's variables say."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memfluence.errors import InputError

__all__ = ["parse_shard", "shard_of_job"]

COUNT = "MEMFLUENCE_SHARDS"  # how many parts, where the scheduler does not say


@dataclass(frozen=True)
class _Scheduler:
    """How a scheduler names a task's part of the whole: by a number, and a count or a range of numbers."""

    name: str
    index: str  # variable with the number of this task
    base: int = 0  # number of the first task of all
    count: str | None = None  # variable with how many tasks there are
    first: str | None = None  # variables with the range of numbers: first, last and step
    last: str | None = None
    step: str | None = None


SCHEDULERS = (
    _Scheduler(
        "Slurm array",
        "SLURM_ARRAY_TASK_ID",
        count="SLURM_ARRAY_TASK_COUNT",
        first="SLURM_ARRAY_TASK_MIN",
        last="SLURM_ARRAY_TASK_MAX",
        step="SLURM_ARRAY_TASK_STEP",
    ),
    _Scheduler(
        "Grid Engine array", "SGE_TASK_ID", 1, first="SGE_TASK_FIRST", last="SGE_TASK_LAST", step="SGE_TASK_STEPSIZE"
    ),
    _Scheduler("LSF array", "LSB_JOBINDEX", 1, last="LSB_JOBINDEX_END", step="LSB_JOBINDEX_STEP"),
    _Scheduler("PBS array", "PBS_ARRAY_INDEX"),
    _Scheduler("Kubernetes indexed Job", "JOB_COMPLETION_INDEX"),
    _Scheduler("GNU parallel", "PARALLEL_SEQ", 1),
    _Scheduler("Open MPI", "OMPI_COMM_WORLD_RANK", count="OMPI_COMM_WORLD_SIZE"),
    _Scheduler("torchrun", "RANK", count="WORLD_SIZE"),
)
_NOT_OF_AN_ARRAY = {"SGE_TASK_ID": "undefined", "LSB_JOBINDEX": "0"}  # they are set in every job


def parse_shard(shard: str | tuple[int, int] | None) -> tuple[int, int] | None:
    """'i/N' (or the pair) -> (i, N) with 0 <= i < N; 'auto' takes it from the environment."""
    if shard is None:
        return None
    if shard == "auto":
        return shard_of_job(os.environ)
    text = "/".join(map(str, shard)) if isinstance(shard, tuple) else shard
    match = re.fullmatch("([0-9]+)/([0-9]+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise InputError(
            f"The 'shard' parameter must read i/N with 0 <= i < N, such as 0/3, or auto. Got {shard!r} instead."
        )
    return int(match[1]), int(match[2])


def shard_of_job(environment: Mapping[str, str]) -> tuple[int, int]:
    """(i, N) of the job array that this process belongs to; exactly one scheduler must have left its variables."""
    found = [one for one in SCHEDULERS if _is_set(one, environment)]
    if not found:
        known = ", ".join(one.index for one in SCHEDULERS)
        raise InputError(f"--shard auto found no job array ({known} are not set); give --shard i/N.")
    if len(found) > 1:
        names = ", ".join(f"{one.index} ({one.name})" for one in found)
        raise InputError(f"--shard auto found the variables of several schedulers: {names}; give --shard i/N.")
    return _part(found[0], environment)


def _is_set(scheduler: _Scheduler, environment: Mapping[str, str]) -> bool:
    return environment.get(scheduler.index, "") not in ("", _NOT_OF_AN_ARRAY.get(scheduler.index, ""))


def _part(scheduler: _Scheduler, environment: Mapping[str, str]) -> tuple[int, int]:
    """With `COUNT` set, tasks are numbered from `base` on, so that some of them can be submitted again."""

    def number(name: str) -> int:
        value = environment.get(name, "")
        if not re.fullmatch("[0-9]+", value):
            said = f"is {value!r}" if value else "is not set"
            raise InputError(
                f"--shard auto needs a number in {name} ({scheduler.name}), which {said}; set it, or give --shard i/N."
            )
        return int(value)

    index, step = number(scheduler.index) - scheduler.base, 1
    if environment.get(COUNT) or not (scheduler.count or scheduler.last):
        count = number(COUNT)
    elif scheduler.last:
        first = number(scheduler.first) if scheduler.first else scheduler.base
        step = max(1, number(scheduler.step)) if scheduler.step else 1
        count = (number(scheduler.last) - first) // step + 1
        index = number(scheduler.index) - first
        if scheduler.count and number(scheduler.count) != count:
            raise InputError(
                f"--shard auto needs an array without gaps, and this {scheduler.name} has {number(scheduler.count)} of"
                f" {count} tasks; set {COUNT} to the number of parts of the whole run, or give --shard i/N."
            )
    else:
        count = number(str(scheduler.count))
    if index < 0 or index % step or not index // step < count:
        raise InputError(
            f"--shard auto cannot place task {environment[scheduler.index]} of the {scheduler.name} among {count}"
            " part(s); check the array's range, or give --shard i/N."
        )
    return index // step, count
