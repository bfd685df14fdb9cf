"""Running the command line as a user does, in processes of its own, or in this one where that shows the same."""

import os
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from memfluence.cli import main
from memfluence.runs import open_run
from memfluence.runs.values import memorization_table

# A learner that is cheap, random and uses its seed; PAUSE makes it take long enough to be killed in the middle.
LEARNER = """
import os
import time
import numpy as np

def learn(x, y, seed):
    time.sleep(float(os.environ.get("PAUSE", "0")))
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(x.shape[1], 3))
    seen, labels = x @ directions, y

    def predict(z):
        return labels[((z @ directions)[:, None] - seen[None]).__pow__(2).sum(-1).argmin(1)]

    return predict
"""

DATA = "longtail?n_train=40&n_test=30&n_classes=3&seed=1"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "memfluence", *arguments]


def memfluence(*arguments: str, cwd: Path, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    if expect is not None:
        assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def in_this_process(*arguments: str, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Where a process of its own shows nothing more: starting one, and a worker, takes longer than small trials."""
    said, errors = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(said), redirect_stderr(errors), pytest.raises(SystemExit) as stop:
        main(arguments)
    done = subprocess.CompletedProcess(arguments, int(stop.value.code or 0), said.getvalue(), errors.getvalue())
    assert done.returncode == expect, done
    return done


def _as_from_a_terminal() -> None:
    for name in (signal.SIGINT, signal.SIGHUP):  # under nohup they would be ignored
        signal.signal(name, signal.SIG_DFL)


def start(*arguments: str, cwd: Path, pause: float = 0.0) -> subprocess.Popen[str]:
    """A command in a process group of its own, so that a signal reaches what a terminal's Ctrl-C would reach."""
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_as_from_a_terminal,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", "PAUSE": str(pause)},
    )


def scores_of(run: str, cwd: Path) -> bytes:
    """As `memfluence scores --out` writes them, CSV and Parquet, made in this process: a command of its own is slow."""
    table = memorization_table(open_run(cwd / run))
    files = [cwd / f"{run}.{kind}" for kind in ("csv", "parquet")]
    for file in files:
        table.write(file)
    return b"".join(file.read_bytes() for file in files)
