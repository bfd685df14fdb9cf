"""Learners that hang, crash, fork and close what is not theirs: what was finished is stored, the rest is said."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engines.commands import DATA, LEARNER, memfluence, start

PATIENCE = 90  # seconds until a test that waits for ever has failed


def learner(here: Path, line: str) -> list[str]:
    """The command of a run whose learner does this first; `seed` tells its trials apart, `trial` counts them."""
    text = LEARNER.replace("    time.sleep", f"    trial = next(COUNT)\n    {line}\n    time.sleep", 1)
    (here / "rough.py").write_text("import itertools\nCOUNT = itertools.count()\n" + text)
    return ["run", DATA, "--learner", "rough.py:learn", "--trials", "30", "--seed", "4", "--out", "run"]


def status(here: Path, out: str = "run") -> dict[str, object]:
    found: dict[str, object] = json.loads(memfluence("status", out, "--json", cwd=here).stdout)
    return found


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.01)


def wait_for_trials(here: Path, count: int, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + PATIENCE
    while status(here)["trials"] != count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, status(here)
        time.sleep(0.2)


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_finished_trials_are_stored_while_a_long_one_trains(tmp_path: Path, workers: str) -> None:
    arguments = learner(tmp_path, "if seed == LONG: open('long', 'w'); time.sleep(3600)")
    arguments += ["--workers", workers]
    long = 28 if workers == "1" else 29  # the other worker ends all others
    with (tmp_path / "rough.py").open("a") as file:
        file.write(f"\nfrom memfluence.seeding import integer_seed\nLONG = integer_seed(4, 'learner', {long})\n")
    process = start(*arguments, cwd=tmp_path)
    wait_for(tmp_path / "long", process)
    wait_for_trials(tmp_path, long, process)
    kill(process)
    assert status(tmp_path)["trials"] == long
