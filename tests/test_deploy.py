"""The scripts of deploy/: they parse, and the parts that they run are together the run that one machine makes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engines.commands import DATA, LEARNER, memfluence, scores_of
from memfluence.training.options import COUNT

DEPLOY = Path(__file__).parent.parent / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))
RUN = [DATA, "--learner", "learner.py:learn", "--trials", "20", "--seed", "4"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the learner, a `memfluence` to call by that name, and the run `local`."""
    directory = tmp_path_factory.mktemp("deploy")
    (directory / "learner.py").write_text(LEARNER)
    tool = directory / "bin" / "memfluence"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memfluence "$@"\n')
    tool.chmod(0o755)
    memfluence("run", *RUN, "--out", "local", cwd=directory)
    return directory


def script(here: Path, name: str, *arguments: str, **variables: str) -> None:
    environment = {**os.environ, "PATH": f"{here / 'bin'}:{os.environ['PATH']}", **variables}
    command = ["bash", str(DEPLOY / name), *arguments]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash_and_says_how_it_is_called(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    done = subprocess.run(["bash", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(path)], check=True)


def test_there_are_scripts() -> None:
    assert {path.name for path in DEPLOY.iterdir()} == {
        "gnu-parallel.sh",
        "kubernetes-job.yaml",
        "ray-cluster.sh",
        "slurm-array.sh",
    }


def test_a_slurm_array_is_one_run(here: Path) -> None:
    for task in ("2", "0", "1"):
        array = {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "2"}
        array |= {"SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_STEP": "1", COUNT: "3"}
        script(here, "slurm-array.sh", *RUN, "--out", "slurm", **array)
    assert scores_of("slurm", here) == scores_of("local", here)


@pytest.mark.skipif(shutil.which("parallel") is None, reason="GNU parallel is not installed")
def test_gnu_parallel_makes_one_run(here: Path) -> None:
    script(here, "gnu-parallel.sh", "3", *RUN, "--out", "parallel")
    assert scores_of("parallel", here) == scores_of("local", here)


def test_the_kubernetes_job_runs_all_parts() -> None:
    job = yaml.safe_load((DEPLOY / "kubernetes-job.yaml").read_text())
    assert job["spec"]["completionMode"] == "Indexed"
    container = job["spec"]["template"]["spec"]["containers"][0]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment[COUNT] == str(job["spec"]["completions"])
    assert "--shard=auto" in container["args"]


def test_a_kubernetes_job_is_one_run(here: Path) -> None:
    """Its pods, as far as they can be played here: the command of the manifest with our data."""
    for index in ("1", "0"):
        environment = {**os.environ, "JOB_COMPLETION_INDEX": index, COUNT: "2"}
        command = [str(here / "bin" / "memfluence"), "run", *RUN, "--out", "pods", "--shard=auto", "--quiet"]
        subprocess.run(command, cwd=here, env=environment, check=True, capture_output=True, timeout=300)
    assert scores_of("pods", here) == scores_of("local", here)
