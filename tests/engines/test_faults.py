"""Killed, interrupted, sharded or spread over workers: the scores are byte for byte those of an undisturbed run."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engines.commands import DATA, LEARNER, in_this_process, memfluence, scores_of, start
from memfluence.engines.environment import blocked
from memfluence.runs import open_run
from memfluence.seeding import integer_seed

FUNCTION = ["run", DATA, "--learner", "learner.py:learn", "--trials", "150", "--seed", "4"]
HERE = ["--engine", "local"]
SLOW_ENOUGH = ["--set", "epochs=800", "--set", "hidden=16"]  # about five seconds in all
BATCHED = ["run", DATA, "--learner", "mlp", "--trials", "640", "--seed", "4", *SLOW_ENOUGH]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the learner and the undisturbed runs `function` and `batched`."""
    directory = tmp_path_factory.mktemp("faults")
    (directory / "learner.py").write_text(LEARNER)
    in_this_process(*FUNCTION, *HERE, "--out", "function", cwd=directory)
    in_this_process(*BATCHED, "--out", "batched", cwd=directory)
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
    for round_ in range(40 if soak else 2):
        process = start(*arguments, "--out", out, "--workers", workers, cwd=here, pause=0.1)
        wait_for(here / out / "run.json", process)
        time.sleep(moments.uniform(0, 2 if round_ == 0 else 1))
        if round_ < 2:
            assert process.poll() is None, "it must be killed in the middle to show anything"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    in_this_process(*arguments, *HERE, "--out", out, cwd=here)
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


@pytest.mark.parametrize(
    ("sent", "workers"), [(signal.SIGINT, "1"), (signal.SIGINT, "2"), (signal.SIGTERM, "2"), (signal.SIGHUP, "1")]
)
def test_ctrl_c_loses_nothing_that_was_complete(
    here: Path, undisturbed: dict[str, bytes], sent: signal.Signals, workers: str
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
    in_this_process(*FUNCTION, *HERE, "--out", out, cwd=here)
    assert scores_of(out, here) == undisturbed["function"]


def test_more_trials_later_are_the_trials_of_a_longer_run(here: Path) -> None:
    run = [*BATCHED[:4], "--seed", "4", "--set", "epochs=10"]
    for out, trials in (("whole", "160"), ("grown", "70"), ("grown", "160")):  # 70 is not a multiple of the group size
        in_this_process(*run, "--trials", trials, "--out", out, cwd=here)
    assert scores_of("grown", here) == scores_of("whole", here)


UNLUCKY = [trial for trial in range(60) if integer_seed(4, "learner", trial) % 23 == 0]


def variant(here: Path, name: str, line: str) -> list[str]:
    """The learner with one more line at its start, in a file of its own, and the command that runs it."""
    (here / f"{name}.py").write_text(LEARNER.replace("    time.sleep", f"    {line}\n    time.sleep", 1))
    return ["run", DATA, "--learner", f"{name}.py:learn", "--trials", "60", "--seed", "4", "--out", name]


def test_a_worker_that_dies_costs_the_trial_that_killed_it(here: Path) -> None:
    arguments = variant(here, "deadly", "if seed % 23 == 0 and not os.path.exists('spared'): os.kill(os.getpid(), 9)")
    arguments += ["--workers", "3"]
    done = in_this_process(*arguments, cwd=here, expect=1)
    assert "was killed by signal 9" in done.stderr
    status = open_run(here / "deadly").status()
    assert [failure["trial"] for failure in status["failures"]] == UNLUCKY
    assert status["trials"] == 60 - len(UNLUCKY)
    (here / "spared").touch()
    in_this_process(*arguments, "--retry-failed", cwd=here)


def test_a_learner_that_exits_fails_its_trial_alone(here: Path) -> None:
    arguments = variant(here, "exits", "if seed % 23 == 0: raise SystemExit(0)")
    done = in_this_process(*arguments, cwd=here, expect=1)
    assert f"{len(UNLUCKY)} trial(s) failed" in done.stderr
    assert "SystemExit" in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_learner_that_swallows_the_signal_is_stopped_after_its_trial(here: Path, workers: str) -> None:
    (here / "greedy.py").write_text(
        "import time\n\ndef learn(x, y, seed):\n    try:\n        time.sleep(0.3)\n    except BaseException:\n"
        "        pass\n    return lambda z: y[:1].repeat(len(z))\n"
    )
    arguments = ["run", DATA, "--learner", "greedy.py:learn", "--trials", "60", "--workers", workers]
    process = start(*arguments, "--out", f"greedy-{workers}", cwd=here)
    wait_for_a_segment(here / f"greedy-{workers}", process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_impatient_second_ctrl_c_loses_nothing(here: Path, workers: str) -> None:
    arguments = [*FUNCTION, "--out", f"impatient-{workers}", "--workers", workers]
    process = start(*arguments, cwd=here, pause=0.1)
    wait_for_a_segment(here / f"impatient-{workers}", process)
    time.sleep(1)  # so that there is something to store
    for _ in range(4):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    status = open_run(here / f"impatient-{workers}").status()
    assert status["segments"] >= 2 * int(workers) - 1  # what came after the first segment was stored too
    assert f"Stopped: {status['trials']} of 150" in errors


def test_a_script_without_the_guard_is_told_of_it(here: Path) -> None:
    """With data larger than a pipe holds, which a worker that dies while starting will never read."""
    (here / "script.py").write_text("import memfluence as mf\nmf.run('digits', trials=64, workers=2, out='script')\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "__name__" in done.stderr.strip().splitlines()[-1]


def test_signals_are_held_back_beside_another_thread() -> None:
    """Which takes them, because it does not hold them back."""
    over, finished, handler = threading.Event(), [], signal.getsignal(signal.SIGINT)

    def work() -> None:
        with blocked():
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # Python handles signals between two of these
                time.sleep(0)
            finished.append("what was to be finished")

    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        over.set()
        other.join()
    assert finished
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_while_workers_start_shows_no_traceback(here: Path) -> None:
    for delay in (0.4, 0.7, 1.0):
        process = start(*FUNCTION, "--out", f"early-{delay}", "--workers", "2", cwd=here, pause=0.1)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors


def test_what_a_learner_prints_is_not_in_the_json(here: Path) -> None:
    arguments = variant(here, "chatty", "print('epoch 1'); os.system('echo child')")
    for workers in ("1", "2"):
        done = memfluence(*arguments[:-1], f"chatty-{workers}", "--workers", workers, "--json", cwd=here)
        assert json.loads(done.stdout)["trials"] == 60
        assert "epoch 1" in done.stderr


def test_a_torn_segment_is_named_set_aside_and_run_again(here: Path, undisturbed: dict[str, bytes]) -> None:
    shutil.copytree(here / "function", here / "torn")
    segment = next((here / "torn" / "trials").glob("*.parquet"))
    segment.write_bytes(segment.read_bytes()[:-20])
    reading = in_this_process("scores", "torn", cwd=here, expect=2)  # there is no other segment
    assert segment.name in reading.stderr
    done = in_this_process(*FUNCTION, *HERE, "--out", "torn", cwd=here)
    assert segment.name in done.stderr
    assert [path.name for path in (here / "torn" / "damaged").iterdir()] == [segment.name]
    assert scores_of("torn", here) == undisturbed["function"]
