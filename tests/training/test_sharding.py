"""Which part of a run a process does: as it is told, or as the variables of each kind of job array say."""

import pytest

from memfluence.errors import InputError
from memfluence.training.options import parse_shard, shard_of_job

SLURM = {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "9", "SLURM_ARRAY_TASK_COUNT": "10"}
SLURM |= {"SLURM_ARRAY_TASK_STEP": "1"}
SGE = {"SGE_TASK_FIRST": "1", "SGE_TASK_LAST": "4", "SGE_TASK_STEPSIZE": "1"}

FOUND = {
    "slurm": ({**SLURM, "SLURM_ARRAY_TASK_ID": "3"}, (3, 10)),
    "slurm from 1": (
        {**SLURM, "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "10"},
        (2, 10),
    ),
    "slurm in steps": (
        {
            "SLURM_ARRAY_TASK_ID": "13",
            "SLURM_ARRAY_TASK_MIN": "5",
            "SLURM_ARRAY_TASK_MAX": "17",
            "SLURM_ARRAY_TASK_STEP": "4",
            "SLURM_ARRAY_TASK_COUNT": "4",
        },
        (2, 4),
    ),
    "two tasks of a slurm array again": (
        {**SLURM, "SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2", "MEMFLUENCE_SHARDS": "10"},
        (7, 10),
    ),
    "grid engine": ({**SGE, "SGE_TASK_ID": "4"}, (3, 4)),
    "pbs": ({"PBS_ARRAY_INDEX": "2", "MEMFLUENCE_SHARDS": "5"}, (2, 5)),
    "lsf": ({"LSB_JOBINDEX": "1", "LSB_JOBINDEX_END": "6", "LSB_JOBINDEX_STEP": "1"}, (0, 6)),
    "kubernetes": ({"JOB_COMPLETION_INDEX": "0", "MEMFLUENCE_SHARDS": "8"}, (0, 8)),
    "gnu parallel": ({"PARALLEL_SEQ": "8", "PARALLEL_JOBSLOT": "2", "MEMFLUENCE_SHARDS": "8"}, (7, 8)),
    "open mpi": ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
    "torchrun": ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, (0, 1)),
    "kubernetes beside a job that is no grid engine array": (
        {"JOB_COMPLETION_INDEX": "1", "MEMFLUENCE_SHARDS": "2", "SGE_TASK_ID": "undefined", "LSB_JOBINDEX": "0"},
        (1, 2),
    ),
}
REFUSED = {
    "nothing": ({}, "found no job array"),
    "only a count": ({"MEMFLUENCE_SHARDS": "3"}, "found no job array"),
    "two at once": (
        {"RANK": "0", "WORLD_SIZE": "2", **SLURM, "SLURM_ARRAY_TASK_ID": "1"},
        "SLURM_ARRAY_TASK_ID (Slurm array), RANK (torchrun)",
    ),
    "no count": ({"JOB_COMPLETION_INDEX": "0"}, "MEMFLUENCE_SHARDS"),
    "a count that is a word": ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE"),
    "gaps": ({**SLURM, "SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_COUNT": "2"}, "gaps"),
    "beyond the last": ({"PARALLEL_SEQ": "9", "MEMFLUENCE_SHARDS": "8"}, "cannot place task 9"),
    "before the first": ({"PARALLEL_SEQ": "0", "MEMFLUENCE_SHARDS": "8"}, "cannot place task 0"),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_job_finds_its_part(name: str) -> None:
    environment, part = FOUND[name]
    assert shard_of_job({**environment, "HOME": "/"}) == part


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_clear_is_one_sentence(name: str) -> None:
    environment, words = REFUSED[name]
    with pytest.raises(InputError) as caught:
        shard_of_job(environment)
    assert words in str(caught.value)
    assert "`shard='i/N'`" in str(caught.value)


def test_the_parts_of_an_array_are_all_different_and_all_there() -> None:
    ids = range(5, 18, 4)
    slurm = {"SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_MAX": "17", "SLURM_ARRAY_TASK_STEP": "4"}
    slurm["SLURM_ARRAY_TASK_COUNT"] = "4"
    parts = [shard_of_job({**slurm, "SLURM_ARRAY_TASK_ID": str(number)}) for number in ids]
    assert parts == [(0, 4), (1, 4), (2, 4), (3, 4)]


def test_auto_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    monkeypatch.setenv("MEMFLUENCE_SHARDS", "3")
    assert parse_shard("auto") == (2, 3)
    assert parse_shard("1/3") == parse_shard((1, 3)) == (1, 3)
