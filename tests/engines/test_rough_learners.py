"""Learners that hang, crash, fork and close what is not theirs: what was finished is stored, the rest is said."""

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from engines.commands import DATA, LEARNER, memfluence, start
from memfluence.runs import open_run

PATIENCE = 90  # seconds until a test that waits for ever has failed
SEED = 4

# Writes down which process begins which trial, then does what DEEDS say of the trial.
ROUGH = """
import ctypes, signal, threading
from memfluence.seeding import integer_seed

TRIALS = {integer_seed(SEED, "learner", trial): trial for trial in range(64)}

class Odd(BaseException):
    "What no learner should raise."

def do(seed):
    with open(JOURNAL, "a") as file:
        file.write(f"{os.getpid()} {TRIALS[seed]}\\n")
    deed = DEEDS.get(TRIALS[seed])
    if deed == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif deed == "exit":
        os._exit(0)
    elif deed == "odd":
        raise Odd("no")
    elif deed == "fork" and (child := os.fork()):
        os.waitpid(child, 0)
    elif deed == "close":
        os.closerange(3, 1000)
    elif deed == "move":
        os.chdir("/")
    elif deed == "thread":
        threading.Thread(target=time.sleep, args=(3600,)).start()
    elif deed == "meet":
        while len({line.split()[0] for line in open(JOURNAL)}) < 2:  # processes
            time.sleep(0.01)
    elif deed == "sleep":
        time.sleep(3600)
    elif deed == "stuck":
        ctypes.PyDLL(None).sleep(3600)  # in C, with the interpreter's lock: no Python runs, not even a signal's handler
"""


def learner(here: Path, deeds: dict[int, str], *more: str) -> list[str]:
    """The command of a run whose learner does this in these trials."""
    text = ROUGH.replace("SEED", str(SEED)).replace("JOURNAL", repr(str(here / "journal")))
    learn = LEARNER.replace("    time.sleep", "    do(seed)\n    time.sleep", 1)
    (here / "rough.py").write_text(f"{learn}{text}\nDEEDS = {deeds}\n")
    return ["run", DATA, "--learner", "rough.py:learn", "--seed", str(SEED), "--out", "run", *more]


def begun(here: Path) -> list[tuple[int, int]]:
    """Process and trial, for each training that has begun."""
    path = here / "journal"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(process), int(trial)) for process, trial in map(str.split, lines)]


def status(here: Path, out: str = "run") -> dict[str, object]:
    return open_run(here / out).status()


def wait_until_begun(here: Path, trial: int, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + PATIENCE
    while trial not in [one for _, one in begun(here)]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.01)


def wait_for_trials(here: Path, count: int, process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + PATIENCE
    while status(here)["trials"] != count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, status(here)
        time.sleep(0.2)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_finished_trials_are_stored_while_a_long_one_trains_and_workers_end_with_their_driver(
    tmp_path: Path, workers: str
) -> None:
    long = 28 if workers == "1" else 29  # the other worker ends all others
    arguments = learner(tmp_path, {long: "sleep"}, "--trials", "30", "--workers", workers)
    process = start(*arguments, cwd=tmp_path)
    wait_until_begun(tmp_path, long, process)
    wait_for_trials(tmp_path, long, process)
    process.kill()
    process.communicate(timeout=PATIENCE)  # returns when the last worker has closed its streams
    assert status(tmp_path)["trials"] == long


def test_whatever_a_trial_does_to_its_process_the_others_go_on(tmp_path: Path) -> None:
    """With one worker, in one command, into a directory that is named from the current one."""
    deeds = {1: "fork", 2: "crash", 4: "exit", 5: "odd", 7: "move", 8: "fork", 9: "close", 11: "thread"}
    done = memfluence(*learner(tmp_path, deeds, "--trials", "12"), cwd=tmp_path, expect=1)
    said, errors = done.stdout, done.stderr
    assert len(errors) < 2000
    assert "Traceback" not in errors
    assert "Unexpected" not in errors
    assert said.count("trials in run") == 1  # no child has gone on as the program
    found = status(tmp_path)
    failures = {failure["trial"]: failure["message"] for failure in found["failures"]}  # type: ignore[attr-defined]
    assert "signal 11" in failures.pop(2)
    assert "code 0 in the middle of its work" in failures.pop(4)
    assert failures.pop(5) == "Odd: no"
    failures.pop(9, None)  # it may have its answer from memory
    assert failures == {}
    assert found["trials"] == 12 - len(found["failures"])  # type: ignore[arg-type]
    assert not Path("/run/run.json").exists()


def test_a_trial_that_is_stuck_in_c_is_stopped_or_has_failed(tmp_path: Path) -> None:
    """Even if it lets no Python code run in its worker."""
    for name in ("stopped", "failed"):
        (tmp_path / name).mkdir()
    stopped = start(*learner(tmp_path / "stopped", {3: "stuck"}, "--trials", "6"), cwd=tmp_path / "stopped")
    failed = start(
        *learner(tmp_path / "failed", {3: "stuck"}, "--trials", "6", "--trial-timeout", "1"), cwd=tmp_path / "failed"
    )
    wait_until_begun(tmp_path / "stopped", 3, stopped)
    for _ in range(2):  # at the second one it waits no longer
        stopped.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, errors = stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode == 130, errors
    assert "Stopped: " in errors
    _, errors = failed.communicate(timeout=PATIENCE)
    assert failed.returncode == 1, errors
    assert "1 trial(s) failed (trial 3: it took longer than the 1 s that a trial may take)" in errors
    assert status(tmp_path / "failed")["trials"] == 5


def test_two_processes_at_one_run_share_its_trials(tmp_path: Path) -> None:
    arguments = learner(tmp_path, dict.fromkeys(range(32), "meet"), "--trials", "32")
    both = [start(*arguments, cwd=tmp_path, pause=0.1) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    trained = begun(tmp_path)
    assert len(trained) <= 1.1 * 32
    assert len({trial for _, trial in trained}) == 32
    assert min(Counter(process for process, _ in trained).values()) >= 4
    assert not (tmp_path / "run" / ".taken").exists()


def test_in_a_script_a_trial_that_ends_the_process_comes_last_and_then_has_failed(tmp_path: Path) -> None:
    """There one worker is the script itself, which has no place to start processes from."""
    deeds = {0: "move", 1: "odd", 2: "crash", 3: "fork", 5: "thread"}
    learner(tmp_path, deeds)
    (tmp_path / "script.py").write_text(f"""
import os
import re
import memfluence as mf

here = os.getcwd()
run = mf.run({DATA!r}, learner="rough.py:learn", seed={SEED}, trials=8, out="run", progress=False)
assert os.getcwd() == here
print(run.status()["trials"], flush=True)
os._exit(0)  # a thread is left
""")
    line = [sys.executable, "script.py"]
    for stored, code in ((0, -signal.SIGSEGV), (6, -signal.SIGSEGV), (6, 0)):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == code, done.stderr
        assert status(tmp_path)["trials"] in (stored, 2 * (stored == 0))  # a crash costs the last seconds
    assert done.stdout == "6\n"
    failures = {one["trial"]: one["message"] for one in status(tmp_path)["failures"]}  # type: ignore[attr-defined]
    assert failures.keys() == {1, 2}
    assert "two processes have ended while they trained it" in failures[2]
    assert Counter(trial for _, trial in begun(tmp_path))[2] == 2


def test_a_signal_during_an_import_stops_the_command_as_at_any_other_time(tmp_path: Path) -> None:
    """Python makes a RuntimeError of one that comes while a class is made."""
    (tmp_path / "beside.py").write_text("""
import os, signal

class Signal:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGTERM)

class Made:
    signal = Signal()
""")
    (tmp_path / "learner.py").write_text(f"import beside\n{LEARNER}")
    done = memfluence("run", DATA, "--learner", "learner.py:learn", cwd=tmp_path, expect=130)
    stopped = r"memfluence: Stopped(: 0 of 2000 trials are stored in .*; run the same command to go on)?\.\n"
    assert re.fullmatch(stopped, done.stderr), done.stderr  # soon afterwards, the run may have begun


def test_processes_that_joblib_keeps_for_an_estimator_go_with_the_worker(tmp_path: Path) -> None:
    """Otherwise they are waited for, and what ends that wait is a traceback."""
    jobs = ["--set", "n_jobs=2", "--set", "n_estimators=2"]
    line = ["run", DATA, "--learner", "sklearn.ensemble:BaggingClassifier", *jobs, "--trials", "2", "--out", "run"]
    assert memfluence(*line, "--quiet", cwd=tmp_path).stderr == ""
