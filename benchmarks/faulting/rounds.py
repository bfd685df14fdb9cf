"""A round: one run of digits that faults happen to, its commands in processes of their own, and what is looked at."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRIALS = 40
PATIENCE = 120  # seconds until a command counts as hung
QUICK = 0.1  # seconds between segments, so that there is something to harm


@dataclass
class Command:
    """A `memfluence` command in a process and a session of its own."""

    pid: int
    output: Path
    code: int | None = None

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """The exit code (minus the signal, if one ended it); None if it is still running after so long."""
        ends = time.monotonic() + seconds
        while self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > ends:
                return None
            else:
                time.sleep(0.005)
        return self.code

    def signal(self, number: int, *, everyone: bool = True) -> None:
        with suppress(ProcessLookupError):
            (os.killpg if everyone else os.kill)(self.pid, number)

    def workers(self) -> list[int]:
        """Processes of its session beside itself, which outlive it if they have to."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                state, _, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                if entry.name.isdigit() and int(session) == self.pid != int(entry.name) and state != "Z":
                    found.append(int(entry.name))
        return found

    def gone(self) -> None:
        """Wait until its workers are gone, too."""
        ends = time.monotonic() + PATIENCE
        while self.workers():
            if time.monotonic() > ends:
                raise TimeoutError("workers outlive their driver")
            time.sleep(0.01)

    def said(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Round:
    """One run that faults happen to."""

    number: int
    here: Path  # working directory, where the learner is
    chance: random.Random
    learner: str = "learn"
    is_mounted: bool = False
    is_random: bool = False  # the learner ignores its seed
    is_damaged: bool = False  # bytes were changed on purpose
    commands: int = 0
    cuts: int = 0  # states of the disk that were looked at
    struck: set[str] = field(default_factory=set)  # faults that did something
    seen: set[int] = field(default_factory=set)  # trials that were stored at some time
    harmed: set[int] = field(default_factory=set)  # those of them in segments that were damaged on purpose
    vanished: set[int] = field(default_factory=set)  # those that were not there later, though nothing harmed them
    silent: list[str] = field(default_factory=list)  # commands that said all was well, and it was not

    @property
    def run(self) -> Path:
        return self.here / f"run-{self.number}"

    @property
    def scratch(self) -> Path:
        """A directory for what commands say and faults need."""
        return self.here / f"round-{self.number}"

    def __enter__(self) -> "Round":
        self.scratch.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for directory in (self.run, self.scratch):
            shutil.rmtree(directory, ignore_errors=True)

    def look(self) -> None:
        """Which trials are there, and are all of those that were?"""
        there = set(in_a_fork(stored, self.run)["trials"])
        self.vanished |= self.seen - self.harmed - there
        self.seen |= there

    def strike(self, name: str, happened: bool = True) -> None:
        if happened:
            self.struck.add(name)

    def start(self, *arguments: str, limit: int | None = None, as_other_host: bool = False, **faults: Any) -> Command:
        """Begin a command; `faults` are those of learner.py."""
        self.commands += 1
        output = self.scratch / f"command-{self.commands}.txt"
        pid = os.fork()
        if pid == 0:
            _be(arguments, output, self.here, faults, limit, as_other_host)
        return Command(pid, output)

    def do(self, *arguments: str, **options: Any) -> tuple[int | None, str]:
        return self.ended(self.start(*arguments, **options), " ".join(arguments))

    def ended(self, command: Command, what: str = "run") -> tuple[int | None, str]:
        """Its exit code and what it said, once it and its workers are gone; a `run` must not end well for nothing."""
        code = command.wait()
        if code is None:
            command.signal(signal.SIGKILL)
            command.wait()
            raise TimeoutError(f"memfluence {what} did not end in {PATIENCE} s")
        command.gone()
        if code == 0 and what.startswith("run"):
            missing = TRIALS - len(in_a_fork(stored, self.run)["trials"])
            self.silent += [f"run ended with 0, and {missing} trials are missing"] if missing else []
        return code, command.said()

    def ended_well(self, command: Command) -> None:
        """It ended by itself; trials may have failed in a fault before."""
        code, said = self.ended(command)
        if code != 0 and not (code == 1 and "--retry-failed" in said):
            raise AssertionError(f"run ended with {code}: {said[-500:]}")

    def run_arguments(self, run: Path | str | None = None) -> list[str]:
        learner = f"learner.py:{self.learner}"
        return [
            "run",
            "digits",
            "--learner",
            learner,
            "--trials",
            str(TRIALS),
            "--quiet",
            "--out",
            str(run or self.run),
        ]

    def training(self, workers: int | None = None, *more: str, run: str | None = None, **faults: Any) -> Command:
        """Begin the run, with a pause in each trial so that it lasts about a second."""
        workers = workers or self.chance.choice([1, 1, 1, 2])
        faults = {"pause": self.chance.uniform(0.01, 0.04) * workers, "interval": QUICK} | faults
        faults |= {"is_random": True} if self.is_random else {}
        return self.start(*self.run_arguments(run), "--workers", str(workers), *more, **faults)

    def some_time(self, command: Command, most: int = 5) -> None:
        """Until the run exists and has a random number of segments more than now, and a random moment longer."""
        wanted = len(self.segments()) + self.chance.randrange(most)
        while command.wait(0.005) is None:
            if (self.run / "run.json").exists() and len(self.segments()) >= wanted:
                break
        command.wait(self.chance.uniform(0, 0.15))

    def partly_done(self) -> None:
        """A run with some of its trials, or all."""
        command = self.training()
        self.some_time(command, 8)
        command.signal(signal.SIGINT)
        self.ended(command)
        self.look()

    def missing(self) -> list[int]:
        return sorted(set(range(TRIALS)) - set(in_a_fork(stored, self.run)["trials"]))

    def become(self, other: Path) -> None:
        """The run is from now on what is in `other` / run, which goes."""
        self.run.mkdir(exist_ok=True)  # on a disk of its own the directory has to stay
        for path in self.run.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if (other / "run").exists():
            shutil.copytree(other / "run", self.run, dirs_exist_ok=True)
        shutil.rmtree(other)

    def segments(self) -> list[Path]:
        return sorted((self.run / "trials").glob("[!.]*.parquet"))


def _be(
    arguments: tuple[str, ...],
    output: Path,
    here: Path,
    faults: dict[str, Any],
    limit: int | None,
    as_other_host: bool,
) -> None:
    """In a forked process: become `memfluence ARGUMENTS`, and never return."""
    code = 1
    try:
        os.setsid()
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
            (signal.SIGHUP, signal.SIG_DFL),
        ):
            signal.signal(number, handler)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(here)
        os.environ["FAULTS"] = json.dumps(faults)
        if as_other_host:
            _be_on_another_host()
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        program = sys.modules["__main__"]
        program.__spec__ = None  # workers need not import this script
        vars(program).pop("__file__", None)
        from memfluence.cli import main

        main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _be_on_another_host() -> None:
    """Go on in a process that sees none of the others, as in a container that has the name of its host."""
    import ctypes

    new_processes, new_mounts = 0x20000000, 0x00020000
    if ctypes.CDLL(None, use_errno=True).unshare(new_processes | new_mounts):
        return  # only root may
    if inside := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)


def in_a_fork(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function that reads a run gives, in a process of its own: this one must have no Arrow threads."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        answer: dict[str, Any]
        try:
            warnings.simplefilter("ignore")
            answer = {"answer": function(*arguments)}
        except (Exception, SystemExit) as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-1500:]}
        with os.fdopen(write, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        content = file.read()
    os.waitpid(pid, 0)
    found = json.loads(content or b'{"error": "a process ended without a word"}')
    if "error" in found:
        raise RuntimeError(f"{found['error']} {found.get('trace', '')}")
    return dict(found["answer"])


def stored(run: Path) -> dict[str, Any]:
    from memfluence.store import TrialStore

    if not (run / "run.json").exists():
        return {"trials": []}
    return {"trials": TrialStore.open(run).scan().numbers.tolist()}


def trials_of(run: Path, segment: str) -> dict[str, Any]:
    from memfluence.store import DamagedSegmentError, TrialStore

    try:
        return {"trials": TrialStore.open(run).read_rows(segment).numbers.tolist()}
    except DamagedSegmentError:  # by a fault before
        return {"trials": []}


def difference(run: Path, undisturbed: Path, is_random: bool = False) -> dict[str, Any]:
    """How many trials are not there, and how many have other bits; a learner that ignores its seed gives its own."""
    from memfluence.store import TrialStore

    if not (run / "run.json").exists():  # the disk was full before it began
        return {"lost": TRIALS, "wrong": 0}
    (ours, _), (theirs, _) = (TrialStore.open(path).read() for path in (run, undisturbed))
    rows = {int(number): row for row, number in enumerate(ours.numbers)}
    missing = [number for number in theirs.numbers.tolist() if number not in rows]
    wrong = sum(
        any(
            (getattr(ours, name)[rows[number]] != getattr(theirs, name)[row]).any()
            for name in (("mask",) if is_random else ("mask", "train_correct", "test_correct"))
        )
        for row, number in enumerate(theirs.numbers.tolist())
        if number in rows
    )
    return {"lost": len(missing), "wrong": wrong}
