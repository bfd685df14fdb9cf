"""Killed or interrupted in the middle of a long trial: the run goes on within it, and the scores are the same bytes."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from engines.commands import in_this_process, scores_of, start

# Network on pictures, slow enough to be caught in the middle: a trial is 400 steps and takes some seconds.
LEARNER = """
from memfluence.learners.network import Network
from memfluence.learners.recipes import Recipe

network = Network("net", "resnet9", Recipe(epochs=200, batch=9, rate=0.01, crop_padding=1, flip=True), {"width": 2})
"""
RUN = ["run", "npz:pictures.npz", "--learner", "learner.py:network", "--trials", "2", "--device", "cpu"]
OFTEN = ["--checkpoint-every", "0.2"]
HERE = ["--engine", "local"]


def write_data_and_learner(directory: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(44) % 3
    x = np.clip(80 * rng.normal(size=(3, 8, 8, 3))[y] + 50 * rng.normal(size=(44, 8, 8, 3)) + 120, 0, 255)
    x = x.astype(np.uint8)
    np.savez(directory / "pictures.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    (directory / "learner.py").write_text(LEARNER)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with data, the learner and the undisturbed run `whole`, which was made without checkpoints."""
    directory = tmp_path_factory.mktemp("long")
    write_data_and_learner(directory)
    in_this_process(*RUN, *HERE, "--checkpoint-every", "0", "--out", "whole", cwd=directory)
    assert not (directory / "whole" / "checkpoints").exists()
    return directory


@pytest.fixture(scope="module")
def undisturbed(here: Path) -> bytes:
    return scores_of("whole", here)


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("*.checkpoint"))


def wait_for_a_checkpoint(run: Path, process: subprocess.Popen[str]) -> None:
    while not checkpoints(run) and process.poll() is None:
        time.sleep(0.01)


def begun(here: Path, out: str, *options: str) -> subprocess.Popen[str]:
    """A run that has written a checkpoint and is still at its first trials."""
    process = start(*RUN, *OFTEN, "--out", out, *options, cwd=here)
    wait_for_a_checkpoint(here / out, process)
    assert process.poll() is None, process.communicate()[1]
    return process


def killed(here: Path, out: str, *options: str) -> None:
    process = begun(here, out, *options)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def fractions(here: Path, run: str) -> dict[int, float]:
    return {part["trial"]: part["fraction"] for part in mf.open(here / run).status()["part_way"]}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_in_the_middle_of_a_trial(here: Path, undisturbed: bytes, workers: str) -> None:
    out = f"killed-{workers}"
    killed(here, out, "--workers", workers)
    kept = fractions(here, out)
    assert kept
    assert all(0 < fraction < 1 for fraction in kept.values())
    done = in_this_process(*RUN, *HERE, "--out", out, cwd=here)
    for trial, fraction in kept.items():
        assert f"trial {trial} goes on from {fraction:.0%}" in done.stderr
    assert checkpoints(here / out) == []
    assert scores_of(out, here) == undisturbed


def test_killed_again_and_again_in_shards(here: Path, undisturbed: bytes) -> None:
    for trial in (0, 1):
        part = ["--shard", f"{trial}/2"]
        killed(here, "sharded", *part)
        before, (path,) = fractions(here, "sharded"), checkpoints(here / "sharded")
        written = path.stat().st_mtime_ns
        process = start(*RUN, *OFTEN, "--out", "sharded", *part, cwd=here)
        while path.exists() and path.stat().st_mtime_ns == written and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert fractions(here, "sharded")[trial] > before[trial]
        done = in_this_process(*RUN, *HERE, "--out", "sharded", *part, cwd=here)
        assert f"trial {trial} goes on from" in done.stderr
    assert checkpoints(here / "sharded") == []
    assert scores_of("sharded", here) == undisturbed


@pytest.mark.parametrize(("workers", "sent"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM)])
def test_an_interrupt_keeps_the_trial_where_it_is(
    here: Path, undisturbed: bytes, workers: str, sent: signal.Signals
) -> None:
    """The clock would write no checkpoint for an hour: what is further on than before, the interrupt has saved."""
    out = f"interrupted-{workers}-{sent.name}"
    killed(here, out, "--workers", workers)
    before = fractions(here, out)
    process = start(*RUN, "--checkpoint-every", "3600", "--out", out, "--workers", workers, cwd=here)
    assert process.stderr is not None
    said = next(line for line in process.stderr if "goes on from" in line)
    trial = int(said.split()[1])
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does: to every process of the group
    else:
        process.send_signal(sent)  # as a scheduler may: to the parent alone
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    kept = fractions(here, out)
    assert before[trial] < kept[trial] <= 1
    assert f"trial {trial} is kept at {kept[trial]:.0%}" in errors
    assert (
        f"part-way  trial {trial} is at {kept[trial]:.0%}, checkpointed"
        in in_this_process("status", out, cwd=here).stdout
    )
    done = in_this_process(*RUN, *HERE, "--out", out, cwd=here)
    assert f"trial {trial} goes on from {kept[trial]:.0%}" in done.stderr
    assert checkpoints(here / out) == []
    assert scores_of(out, here) == undisturbed


def test_a_torn_checkpoint_is_passed_over_with_a_note(here: Path, undisturbed: bytes) -> None:
    """`tests/store/test_checkpoint_files.py` has the other reasons."""
    killed(here, "torn")
    (path,) = checkpoints(here / "torn")
    path.write_bytes(path.read_bytes()[:-1000])
    done = in_this_process(*RUN, *HERE, "--out", "torn", cwd=here)
    assert "The checkpoint of trial 0 is not used, because it is damaged; the trial starts over." in done.stderr
    assert "goes on from" not in done.stderr
    assert scores_of("torn", here) == undisturbed


def test_a_trial_whose_worker_is_killed_goes_on_from_its_checkpoint(here: Path, undisturbed: bytes) -> None:
    process = begun(here, "worker", "--workers", "2")
    trial = int(checkpoints(here / "worker")[0].stem)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in map(int, children):
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
    _, errors = process.communicate()
    assert f"trial {trial} goes on from" in errors
    done = in_this_process(
        *RUN, *HERE, "--out", "worker", "--retry-failed", cwd=here
    )  # the other may have had no checkpoint yet
    assert done.returncode == 0
    assert scores_of("worker", here) == undisturbed


# Kills its process whenever it comes to its 40th step, until there is a file `mended`.
DEADLY = """
import os, time
import torch
from torch import nn

class Deadly(nn.Module):
    def __init__(self, in_channels, n_classes):
        super().__init__()
        self.head = nn.Linear(64 * in_channels, n_classes)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, images):
        if self.training:
            time.sleep(0.02)
            self.steps += 1
            if self.steps == 40 and not os.path.exists("mended"):
                os.kill(os.getpid(), 9)
        return self.head(images.flatten(1))
"""


def test_a_trial_that_kills_its_workers_at_one_step_fails_in_the_end(here: Path) -> None:
    (here / "deadly.py").write_text(DEADLY)
    settings = [
        "--set",
        "epochs=25",
        "--set",
        "batch=9",
        "--trials",
        "1",
        "--device",
        "cpu",
        "--checkpoint-every",
        "0.2",
    ]
    run = ["run", "npz:pictures.npz", "--learner", "deadly.py:Deadly@mnist", *settings]
    done = in_this_process(*run, "--out", "deadly", cwd=here, expect=1)
    assert "trial 0 goes on from" in done.stderr
    assert "1 trial(s) failed (trial 0: worker process 0 was killed by signal 9" in done.stderr
    assert "Next" not in done.stdout
    status = in_this_process("status", "deadly", cwd=here).stdout
    assert "ago; failed since, --retry-failed goes on from there" in status
    (here / "mended").touch()
    done = in_this_process(*run, *HERE, "--out", "deadly", "--retry-failed", cwd=here)
    assert "trial 0 goes on from" in done.stderr
    in_this_process(*run, *HERE, "--out", "well", cwd=here)
    assert scores_of("deadly", here) == scores_of("well", here)


def test_stale_checkpoints_are_cleaned_up(here: Path, undisturbed: bytes) -> None:
    """Killed after the segment was written and before the checkpoint was deleted."""
    killed(here, "stale")
    left = checkpoints(here / "stale")[0]
    content = left.read_bytes()
    in_this_process(*RUN, *HERE, "--out", "stale", cwd=here)
    left.write_bytes(content)
    assert fractions(here, "stale") == {}
    assert scores_of("stale", here) == undisturbed
    in_this_process(*RUN, *HERE, "--out", "stale", cwd=here)
    assert checkpoints(here / "stale") == []


def test_the_interval_is_no_part_of_the_run(here: Path) -> None:
    for given in ("-1", "nan", "often"):
        done = in_this_process(*RUN, "--checkpoint-every", given, "--out", "whole", cwd=here, expect=2)
        assert "checkpoint" in done.stderr
    in_this_process(*RUN, "--checkpoint-every", "7.5", "--out", "whole", cwd=here)
    assert "checkpoint" not in (here / "whole" / "run.json").read_text()
