"""Killed, interrupted, sharded or spread over workers: the scores are byte for byte those of an undisturbed run."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engines.commands import DATA, LEARNER, memfluence, scores_of, start

FUNCTION = ["run", DATA, "--learner", "learner.py:learn", "--trials", "150", "--seed", "4"]
BATCHED = [
    "run",
    DATA,
    "--learner",
    "mlp",
    "--trials",
    "200",
    "--seed",
    "4",
    "--set",
    "epochs=20",
    "--set",
    "hidden=16",
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the learner and the undisturbed runs `function` and `batched`."""
    directory = tmp_path_factory.mktemp("faults")
    (directory / "learner.py").write_text(LEARNER)
    memfluence(*FUNCTION, "--out", "function", cwd=directory)
    memfluence(*BATCHED, "--out", "batched", cwd=directory)
    return directory


@pytest.fixture(scope="module")
def undisturbed(here: Path) -> dict[str, bytes]:
    return {name: scores_of(name, here) for name in ("function", "batched")}


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


def wait_for_a_segment(run: Path, process: subprocess.Popen[str]) -> None:
    while not list((run / "trials").glob("*.parquet")) and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("name", "arguments"), [("function", FUNCTION), ("batched", BATCHED)])
def test_killed_at_random_moments(
    here: Path, undisturbed: dict[str, bytes], name: str, arguments: list[str], workers: str, soak: bool
) -> None:
    out = f"killed-{name}-{workers}"
    moments = random.Random(f"{name}{workers}")
    for _ in range(40 if soak else 2):
        process = start(*arguments, "--out", out, "--workers", workers, cwd=here, pause=0.05)
        wait_for(here / out / "run.json", process)
        time.sleep(moments.uniform(0, 4))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    memfluence(*arguments, "--out", out, "--workers", workers, cwd=here)
    assert scores_of(out, here) == undisturbed[name]


def test_the_parent_alone_is_killed(here: Path, undisturbed: dict[str, bytes]) -> None:
    """Workers that outlive their parent store what they have and end; overlap with the next command does no harm."""
    process = start(*FUNCTION, "--out", "orphans", "--workers", "2", cwd=here, pause=0.1)
    wait_for_a_segment(here / "orphans", process)
    process.kill()
    memfluence(*FUNCTION, "--out", "orphans", "--workers", "2", cwd=here)
    process.communicate()  # returns when the last orphan has closed its streams
    assert scores_of("orphans", here) == undisturbed["function"]


@pytest.mark.parametrize(("name", "arguments"), [("function", FUNCTION), ("batched", BATCHED)])
def test_three_shards_side_by_side(here: Path, undisturbed: dict[str, bytes], name: str, arguments: list[str]) -> None:
    out = f"shards-{name}"
    processes = [start(*arguments, "--out", out, "--shard", f"{part}/3", cwd=here) for part in range(3)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert scores_of(out, here) == undisturbed[name]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_loses_nothing_that_was_complete(
    here: Path, undisturbed: dict[str, bytes], workers: str, sent: signal.Signals
) -> None:
    out = f"interrupted-{workers}-{sent.name}"
    process = start(*FUNCTION, "--out", out, "--workers", workers, cwd=here, pause=0.1)
    wait_for_a_segment(here / out, process)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does: to every process of the group
    else:
        process.send_signal(sent)  # as a scheduler may: to the parent alone
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "run the same command to go on" in errors
    assert "Traceback" not in errors
    stored = int(errors.partition("Stopped: ")[2].partition(" of 150")[0])
    assert 0 < stored < 150
    assert list((here / out / "trials").glob(".partial-*")) == []
    memfluence(*FUNCTION, "--out", out, "--workers", workers, cwd=here)
    assert scores_of(out, here) == undisturbed["function"]


def test_more_trials_later_are_the_trials_of_a_longer_run(here: Path, undisturbed: dict[str, bytes]) -> None:
    shorter = [*BATCHED[:4], "--trials", "70", *BATCHED[6:]]  # not a multiple of the group size
    memfluence(*shorter, "--out", "grown", cwd=here)
    memfluence(*BATCHED, "--out", "grown", cwd=here)
    assert scores_of("grown", here) == undisturbed["batched"]


def test_a_worker_that_dies_costs_its_trials_alone(here: Path) -> None:
    (here / "deadly.py").write_text(
        LEARNER.replace(
            "    rng =",
            "    import pathlib\n    if not pathlib.Path('spared').exists() and seed % 50 == 0:\n"
            "        os.kill(os.getpid(), 9)\n    rng =",
        )
    )
    arguments = ["run", DATA, "--learner", "deadly.py:learn", "--trials", "100", "--workers", "2", "--out", "deadly"]
    done = memfluence(*arguments, cwd=here, expect=1)
    assert "was killed by signal 9" in done.stderr
    assert "run the same command to go on" in done.stderr
    (here / "spared").touch()
    memfluence(*arguments, cwd=here)


def test_a_torn_segment_is_named_set_aside_and_run_again(here: Path, undisturbed: dict[str, bytes]) -> None:
    memfluence(*BATCHED, "--out", "torn", cwd=here)
    segment = next((here / "torn" / "trials").glob("*.parquet"))
    segment.write_bytes(segment.read_bytes()[:-20])
    reading = memfluence("scores", "torn", cwd=here, expect=None)
    assert segment.name in reading.stderr
    done = memfluence(*BATCHED, "--out", "torn", cwd=here)
    assert segment.name in done.stderr
    assert [path.name for path in (here / "torn" / "damaged").iterdir()] == [segment.name]
    assert scores_of("torn", here) == undisturbed["batched"]
