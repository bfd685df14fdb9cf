"""A fault campaign: runs that are killed, torn, filled up and confused at random, and come out as if nothing had been.

    python benchmarks/faults.py --rounds 200 --seed 0

A round begins a run of digits with a small learner, lets one or two faults happen to it (see `FAULTS`), mends what was
damaged on purpose (`memfluence repair`), runs the same command to its end and then asks: is `memfluence verify` clean,
are all trials there with the bits of an undisturbed run, are the scores, CSV and Parquet, those of the undisturbed run
byte for byte? A trial that was stored once and is not there after a fault counts as lost, though it would run again,
unless its segment was damaged on purpose. A fault may come too late to do anything; how often it struck is counted.
Segments are written every tenth of a second rather than every two, so that there is something to harm.

A command is the real one in a process of its own, with real worker processes; the process is forked from this one,
which has imported everything, because importing would take most of the time. As root, full and read-only disks are
small tmpfs mounts; otherwise the limit on the size of files (RLIMIT_FSIZE) and permissions. The wall clock is made to
jump within the processes and on the files, not on the machine.

Prints a table, saves it with all rounds as JSON, and ends with code 1 if a trial was lost or wrong.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRIALS = 40
PATIENCE = 120  # seconds until a command counts as hung
CLOCK, INTERVAL, PAUSE = "FAULTS_CLOCK", "FAULTS_INTERVAL", "FAULTS_PAUSE"  # environment of the learner below

# The next training example along a random direction. Its file is imported by every process that trains, which is where
# segments are made frequent, and where the wall clock jumps.
LEARNER = f"""
import os
import random
import time
import numpy as np
from memfluence.store import writer

writer._SHORTEST = float(os.environ.get("{INTERVAL}", "2"))
if "{CLOCK}" in os.environ:
    clock, chance = time.time, random.Random(f"{{os.environ['{CLOCK}']}} {{os.getpid()}}")
    offset = [chance.uniform(-3e8, 3e8)]

    def jumping():
        if chance.random() < 0.1:
            offset[0] = chance.uniform(-3e8, 3e8)
        return clock() + offset[0]

    time.time = jumping


def learn(x, y, seed):
    time.sleep(float(os.environ.get("{PAUSE}", "0")))
    direction = np.random.default_rng(seed).normal(size=64)
    seen = x.reshape(len(x), 64) @ direction
    order = seen.argsort()

    def predict(z):
        place = np.searchsorted(seen[order], z.reshape(len(z), 64) @ direction)
        return y[order[place.clip(max=len(y) - 1)]]

    return predict
"""


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


@dataclass
class Round:
    """One run that faults happen to."""

    number: int
    here: Path  # working directory: learner and output of commands
    run: Path
    chance: random.Random
    is_mounted: bool = False
    is_damaged: bool = False  # bytes were changed on purpose
    commands: int = 0
    struck: set[str] = field(default_factory=set)  # faults that did something
    seen: set[int] = field(default_factory=set)  # trials that were stored at some time
    harmed: set[int] = field(default_factory=set)  # those of them in segments that were damaged on purpose
    vanished: set[int] = field(default_factory=set)  # those that were not there later, though nothing harmed them

    def look(self) -> None:
        """Which trials are there, and are all of those that were?"""
        there = set(_in_a_fork(_stored, self.run)["trials"])
        self.vanished |= self.seen - self.harmed - there
        self.seen |= there

    def strike(self, name: str, happened: bool) -> None:
        if happened:
            self.struck.add(name)

    def start(self, *arguments: str, limit: int | None = None, **environment: str) -> Command:
        self.commands += 1
        output = self.here / f"round-{self.number}-{self.commands}.txt"
        pid = os.fork()
        if pid == 0:
            _be(arguments, output, self.here, environment, limit)
        return Command(pid, output)

    def do(self, *arguments: str, **options: Any) -> tuple[int | None, str]:
        command = self.start(*arguments, **options)
        code = command.wait()
        if code is None:
            command.signal(signal.SIGKILL)
            command.wait()
            raise TimeoutError(f"memfluence {' '.join(arguments)} did not end in {PATIENCE} s")
        command.gone()
        return code, command.output.read_text(errors="replace")

    def training(self, workers: int | None = None, **options: Any) -> Command:
        """Begin the run, with a pause in each trial so that it lasts about a second."""
        workers = workers or self.chance.choice([1, 1, 1, 2])
        pause = str(self.chance.uniform(0.01, 0.04) * workers)
        return self.start(
            *run_arguments(self.run), "--workers", str(workers), **{PAUSE: pause, INTERVAL: "0.1"}, **options
        )

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
        command.wait()
        command.gone()
        self.look()

    def segments(self) -> list[Path]:
        return sorted((self.run / "trials").glob("[!.]*.parquet"))


def run_arguments(run: Path) -> list[str]:
    return ["run", "digits", "--learner", "learner.py:learn", "--trials", str(TRIALS), "--quiet", "--out", str(run)]


def _be(arguments: tuple[str, ...], output: Path, here: Path, environment: dict[str, str], limit: int | None) -> None:
    """In a forked process: become `python -m memfluence ARGUMENTS`, and never return."""
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
        os.environ.update(environment)
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


# Faults: each happens to a run that may be there already, and returns when its processes are gone.


def driver_killed(one: Round) -> None:
    """The driver gets SIGKILL, with its workers or without them."""
    command = one.training()
    one.some_time(command)
    command.signal(signal.SIGKILL, everyone=one.chance.random() < 0.5)
    one.strike("driver killed (SIGKILL)", command.wait() == -signal.SIGKILL)
    if one.chance.random() < 0.5:
        command.gone()  # otherwise the next command meets the orphans


def worker_killed(one: Round) -> None:
    """One worker of two gets SIGKILL, perhaps the other one later; the driver goes on."""
    command = one.training(workers=2)
    for _ in range(one.chance.choice([1, 2])):
        one.some_time(command)
        with suppress(IndexError, OSError):
            os.kill(one.chance.choice([pid for pid in command.workers() if _trains(pid)]), signal.SIGKILL)
            one.strike("worker killed (SIGKILL)", True)
    command.wait()
    command.gone()


def _trains(pid: int) -> bool:
    return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()  # and not multiprocessing's resource tracker


def interrupted(one: Round) -> None:
    """Ctrl-C at a random time, up to three of them."""
    command = one.training()
    one.some_time(command)
    for _ in range(one.chance.choice([1, 1, 2, 3])):
        command.signal(signal.SIGINT)
        time.sleep(one.chance.uniform(0, 0.05))
    one.strike("Ctrl-C", command.wait() == 130)
    command.gone()


def torn_segment(one: Round) -> None:
    """A segment is cut off anywhere."""
    one.partly_done()
    for path in _to_harm(one, "torn segment"):
        path.write_bytes(path.read_bytes()[: one.chance.randrange(path.stat().st_size)])
        one.is_damaged = True
    find_and_repair(one)


def flipped_bits(one: Round) -> None:
    """One to three bits of a segment are flipped anywhere."""
    one.partly_done()
    for path in _to_harm(one, "flipped bits"):
        content = bytearray(path.read_bytes())
        for position in one.chance.sample(range(8 * len(content)), one.chance.choice([1, 1, 3])):
            content[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(content))
        one.is_damaged = True
    find_and_repair(one)


def find_and_repair(one: Round) -> None:
    """`verify` must find the damage; then `repair` sets it aside, or the next `run` does."""
    if not one.is_damaged:
        return
    code, said = one.do("verify", str(one.run))
    if code != 1:
        raise AssertionError(f"verify did not find the damage: {said[-500:]}")
    if one.chance.random() < 0.7:
        code, said = one.do("repair", str(one.run))
        if code != 0:
            raise AssertionError(f"repair ended with {code}: {said[-500:]}")


def full_disk(one: Round) -> None:
    """The disk takes only so much: a small tmpfs, or a limit on the size of each file."""
    if not one.is_mounted or one.chance.random() < 0.3:
        command = one.training(limit=one.chance.randrange(2_000, 9_000))
        one.strike("full disk", command.wait() != 0)
        command.gone()
        return
    _remount(one.run, f"size={4 * one.chance.randrange(6, 24)}k")
    command = one.training()
    one.strike("full disk", command.wait() != 0)
    command.gone()
    _remount(one.run, "size=64m")


def read_only_disk(one: Round) -> None:
    """The disk becomes read-only while the run writes to it."""
    command = one.training()
    one.some_time(command)
    with _read_only(one) as is_read_only:
        command.wait(one.chance.uniform(0.2, 1.5))
        command.signal(signal.SIGINT)
        one.strike("read-only disk", command.wait() != 0 and is_read_only)
        command.gone()


def clock_jumps(one: Round) -> None:
    """The wall clock jumps by years within the processes, and files are from the future or the past."""
    command = one.training(**{CLOCK: str(one.chance.random())})
    one.some_time(command)
    one.strike("clock jumps", command.code is None)
    for path in one.run.rglob("*"):
        if one.chance.random() < 0.5:
            with suppress(FileNotFoundError):
                moment = time.time() + one.chance.uniform(-1e8, 1e8)
                os.utime(path, (moment, moment))
    one.do("status", str(one.run))  # its index knows files by their times
    if one.chance.random() < 0.5:
        command.signal(signal.SIGINT)
    command.wait()
    command.gone()


def two_drivers(one: Round) -> None:
    """The same command twice at once; perhaps one of the two is killed."""
    commands = [one.training(), one.training()]
    one.strike("two drivers at once", commands[0].wait(0.1) is None)
    if one.chance.random() < 0.5:
        one.some_time(commands[0])
        one.chance.choice(commands).signal(signal.SIGKILL)
    for command in commands:
        command.wait()
        command.gone()


def compact_killed(one: Round) -> None:
    """`compact` gets SIGKILL in the middle, several times, perhaps while the run goes on."""
    one.partly_done()
    command = one.training() if one.chance.random() < 0.5 else None
    for _ in range(3):
        compacting = one.start("compact", str(one.run))
        before = set(one.segments())
        until = time.monotonic() + PATIENCE
        if one.chance.random() < 0.7:  # once it has done something; otherwise at any time
            while compacting.wait(0) is None and set(one.segments()) == before and time.monotonic() < until:
                pass
        else:
            compacting.wait(one.chance.uniform(0, 0.15))
        compacting.signal(signal.SIGKILL)
        one.strike("compact killed (SIGKILL)", compacting.wait() == -signal.SIGKILL)
        one.look()
    if command:
        command.wait()
        command.gone()


FAULTS: dict[str, Callable[[Round], None]] = {
    "driver killed (SIGKILL)": driver_killed,
    "worker killed (SIGKILL)": worker_killed,
    "Ctrl-C": interrupted,
    "torn segment": torn_segment,
    "flipped bits": flipped_bits,
    "full disk": full_disk,
    "read-only disk": read_only_disk,
    "clock jumps": clock_jumps,
    "two drivers at once": two_drivers,
    "compact killed (SIGKILL)": compact_killed,
}
MOUNTED = ("full disk", "read-only disk")


def _to_harm(one: Round, name: str) -> list[Path]:
    """One or two segments, if there are any; their trials may be missing from now on."""
    paths = one.segments()
    chosen = one.chance.sample(paths, min(len(paths), one.chance.choice([1, 1, 2])))
    for path in chosen:
        one.harmed |= set(_in_a_fork(_trials_of, one.run, path.name)["trials"])
    one.strike(name, bool(chosen))
    return chosen


def _remount(directory: Path, how: str) -> bool:
    done = subprocess.run(["mount", "-o", f"remount,{how}", str(directory)], capture_output=True, check=False)
    return done.returncode == 0


class _read_only:
    """The run cannot be written to within the block."""

    def __init__(self, one: Round) -> None:
        self._one = one

    def __enter__(self) -> bool:
        """Whether that is so."""
        if self._one.is_mounted:
            for _ in range(200):  # busy while a file is being written
                if _remount(self._one.run, "ro"):
                    return True
                time.sleep(0.005)
        elif os.geteuid() != 0:
            (self._one.run / "trials").chmod(0o555)
            return True
        return False

    def __exit__(self, *_: object) -> None:
        if self._one.is_mounted:
            _remount(self._one.run, "rw")
        elif os.geteuid() != 0:
            (self._one.run / "trials").chmod(0o755)


@dataclass(frozen=True)
class Undisturbed:
    run: Path
    scores: dict[str, bytes]  # by ending


def scores_of(one: Round, run: Path) -> dict[str, bytes]:
    found = {}
    for ending in ("csv", "parquet"):
        file = one.here / f"scores-{one.number}.{ending}"
        code, said = one.do("scores", str(run), "--out", str(file))
        if code != 0:
            raise AssertionError(f"scores ended with {code}: {said[-500:]}")
        found[ending] = file.read_bytes()
        file.unlink()
    return found


def play(one: Round, names: list[str], undisturbed: Undisturbed) -> dict[str, Any]:
    """Let the faults happen, go on, and look. What is found is in the result; nothing is raised."""
    began = time.monotonic()
    found: dict[str, Any] = {"round": one.number, "faults": names, "lost": TRIALS, "wrong": 0, "wrong_scores": True}
    try:
        for name in names:
            FAULTS[name](one)
            one.look()
        found |= {"struck": sorted(one.struck), "stored_then_gone": len(one.vanished)}
        found["left_to_run"] = _in_a_fork(_difference, one.run, undisturbed.run)["lost"]
        code, said = one.do(*run_arguments(one.run))
        if code == 1 and "--retry-failed" in said:  # a trial whose worker was killed has failed
            code, said = one.do(*run_arguments(one.run), "--retry-failed")
        if code != 0:
            raise AssertionError(f"run ended with {code}: {said[-500:]}")
        code, said = one.do("verify", str(one.run), "--json")
        found |= {"clean": code == 0} | ({} if code == 0 else {"verify": said[-500:]})
        found |= _in_a_fork(_difference, one.run, undisturbed.run)
        found["lost"] += len(one.vanished)
        found["wrong_scores"] = scores_of(one, one.run) != undisturbed.scores
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    found["bad"] = bool(
        found.get("error") or found["lost"] or found["wrong"] or found["wrong_scores"] or not found.get("clean")
    )
    found["seconds"] = time.monotonic() - began
    return found


def _in_a_fork(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function that reads a run gives, in a process of its own: this one must have no Arrow threads."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(function(*arguments)).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return dict(json.loads(answer))


def _stored(run: Path) -> dict[str, Any]:
    from memfluence.store import TrialStore

    if not (run / "run.json").exists():
        return {"trials": []}
    return {"trials": TrialStore.open(run).scan().numbers.tolist()}


def _trials_of(run: Path, segment: str) -> dict[str, Any]:
    from memfluence.store import DamagedSegmentError, TrialStore

    try:
        return {"trials": TrialStore.open(run).read_rows(segment).numbers.tolist()}
    except DamagedSegmentError:  # by a fault before
        return {"trials": []}


def _difference(run: Path, undisturbed: Path) -> dict[str, Any]:
    """How many trials are not there, and how many have other bits."""
    from memfluence.store import TrialStore

    if not (run / "run.json").exists():  # the disk was full before it began
        return {"lost": TRIALS, "wrong": 0}
    (ours, _), (theirs, _) = (TrialStore.open(path).read() for path in (run, undisturbed))
    rows = {int(number): row for row, number in enumerate(ours.numbers)}
    missing = [number for number in theirs.numbers.tolist() if number not in rows]
    wrong = sum(
        any(
            (getattr(ours, name)[rows[number]] != getattr(theirs, name)[row]).any()
            for name in ("mask", "train_correct", "test_correct")
        )
        for row, number in enumerate(theirs.numbers.tolist())
        if number in rows
    )
    return {"lost": len(missing), "wrong": wrong}


def campaign(rounds: int, seed: int, jobs: int, say: Callable[[str], None]) -> dict[str, Any]:
    import pandas  # noqa: F401  what commands load later is loaded before all forks
    import threadpoolctl  # noqa: F401

    from memfluence import datasets, exchange, running, runs  # noqa: F401
    from memfluence.cli import _app  # noqa: F401
    from memfluence.store import upkeep  # noqa: F401

    began = time.monotonic()
    here = Path(tempfile.mkdtemp(prefix="memfluence-faults-"))
    may_mount = _may_mount(here)
    try:
        (here / "learner.py").write_text(LEARNER)
        first = Round(-1, here, here / "undisturbed", random.Random(seed))
        code, said = first.do(*run_arguments(first.run))
        if code != 0:
            raise SystemExit(f"The undisturbed run failed: {said}")
        undisturbed = Undisturbed(first.run, scores_of(first, first.run))
        players = []
        for job in range(jobs):
            players.append(os.fork())
            if players[-1] == 0:
                try:
                    for number in range(job, rounds, jobs):
                        found = _one_round(number, seed, here, may_mount, undisturbed)
                        (here / f"result-{number}.json").write_text(json.dumps(found))
                        how = f"WRONG {json.dumps(found)}" if found["bad"] else "right"
                        say(f"round {number + 1} ({' and '.join(found['faults'])}): {how}, {found['seconds']:.1f} s")
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
        for player in players:
            os.waitpid(player, 0)
        results = [json.loads((here / f"result-{number}.json").read_text()) for number in range(rounds)]
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return {
        "rounds": rounds,
        "seed": seed,
        "jobs": jobs,
        "trials_per_round": TRIALS,
        "commit": _commit(),
        "seconds": time.monotonic() - began,
        "mounts": may_mount,
        "table": table_of(results),
        "bad_rounds": sum(one["bad"] for one in results),
        "results": results,
    }


def _one_round(number: int, seed: int, here: Path, may_mount: bool, undisturbed: Undisturbed) -> dict[str, Any]:
    chance = random.Random(f"{seed} {number}")
    names = [list(FAULTS)[number % len(FAULTS)]]
    names += [chance.choice(list(FAULTS))] if chance.random() < 0.3 else []
    one = Round(number, here, here / f"run-{number}", chance)
    if may_mount and set(names) & set(MOUNTED):
        one.run.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(one.run)], check=True)
        one.is_mounted = True
    try:
        found = play(one, names, undisturbed)
    finally:
        if one.is_mounted:
            subprocess.run(["umount", "-l", str(one.run)], check=True)
    shutil.rmtree(one.run, ignore_errors=True)
    for file in here.glob(f"round-{number}-*"):
        file.unlink()
    return found | {"mounted": one.is_mounted}


def table_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each fault, over the rounds that it happened in, and one for all."""
    chosen = [(name, [one for one in results if name in one["faults"]]) for name in FAULTS] + [("all", results)]
    return [
        {
            "fault": name,
            "rounds": len(rows),
            "struck": sum(
                (name in one.get("struck", ())) if name in FAULTS else bool(one.get("struck")) for one in rows
            ),
            "left_to_run": sum(one.get("left_to_run", 0) for one in rows),
            "trials_lost": sum(one["lost"] for one in rows),
            "trials_wrong": sum(one["wrong"] for one in rows),
            "not_clean": sum(not one.get("clean") for one in rows),
            "other_scores": sum(one["wrong_scores"] for one in rows),
        }
        for name, rows in chosen
    ]


HEADER = ("fault", "rounds", "struck", "left to run", "trials lost", "trials wrong", "verify not clean", "other scores")


def page_of(found: dict[str, Any]) -> str:
    rows = "\n".join("| " + " | ".join(str(cell) for cell in row.values()) + " |" for row in found["table"])
    disks = (
        "small tmpfs mounts, or limits on the size of files"
        if found["mounts"]
        else "limits on the size of files, and permissions"
    )
    command = f"python benchmarks/faults.py --rounds {found['rounds']} --seed {found['seed']} --jobs {found['jobs']}"
    return f"""# Faults

<!-- made by benchmarks/faults.py -->

A run can be stopped, killed, damaged and confused at any time; what it says in the end is what it would have said.
This is one campaign of {found["rounds"]} rounds:
`{command}` at commit {found["commit"]},
{found["seconds"] / 60:.0f} minutes with {found["jobs"]} rounds at a time on {os.cpu_count()} shared cores.

Each round is a run of {found["trials_per_round"]} trials on digits that one fault happens to, or (in three of ten
rounds) two. Then the same command runs to its end, after `memfluence repair` where bytes were damaged on purpose.
`memfluence verify` must be clean, every trial must have the bits of an undisturbed run, and the scores, CSV and
Parquet, must be its scores byte for byte. `verify` must have found the damage first; in three of ten cases it is left
to `memfluence run` to set it aside.

| {" | ".join(HEADER)} |
|---|{"---|" * (len(HEADER) - 1)}
{rows}

The rounds of a fault are those that it happened in, so those with two faults count twice; the last line counts each
once. A fault that came too late, or found nothing to harm, did not strike. "Left to run" are the trials that were not
there when the faults were over; one that had been stored in a segment that nobody damaged on purpose would count as
lost. Full and read-only disks were {disks}.
The clock jumps within the processes and on the files' times, not on the machine.
`make soak` repeats the campaign, `make test` one round of each fault. What hostile files can do is on [another
page](fuzzing.md).
"""


def _may_mount(here: Path) -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    probe = here / "probe"
    probe.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(probe)], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    return done.returncode == 0


def _commit() -> str:
    root = Path(__file__).parent.parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    parser.add_argument("--out", default="benchmarks/results/faults.json")
    parser.add_argument("--page", help="write the table as a page, such as docs/faults.md")
    options = parser.parse_args()
    found = campaign(options.rounds, options.seed, options.jobs, lambda line: print(line, flush=True))
    print()
    for row in [HEADER, *(tuple(row.values()) for row in found["table"])]:
        print("  ".join([f"{row[0]:24s}", *(f"{cell:>16}" for cell in row[1:])]))
    took, bad = found["seconds"], found["bad_rounds"]
    print(f"{found['rounds']} rounds in {took:.0f} s, {bad} of them bad; commit {found['commit']}")
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    if options.page:
        Path(options.page).write_text(page_of(found))
    sys.exit(1 if found["bad_rounds"] else 0)


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # no threads before a fork, and the bits of every engine
    main()
