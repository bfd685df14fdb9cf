"""Faults: each happens to a run that may be there already, and returns when its processes are gone."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from faulting import cuts
from faulting.rounds import PATIENCE, Round, in_a_fork, stored, trials_of

__all__ = ["FAULTS", "GROUPED", "MOUNTED", "RANDOM"]


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
    command = one.training(clock=str(one.chance.random()))
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


def _to_harm(one: Round, name: str) -> list[Path]:
    """One or two segments, if there are any; their trials may be missing from now on."""
    paths = one.segments()
    chosen = one.chance.sample(paths, min(len(paths), one.chance.choice([1, 1, 2])))
    for path in chosen:
        one.harmed |= set(in_a_fork(trials_of, one.run, path.name)["trials"])
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


# Learners that take long, crash, and do what no learner should.


def long_trial(one: Round) -> None:
    """The driver gets SIGKILL while a trial is long: what was finished before is stored."""
    _killed_in_a_long_trial(one, "long trial, then SIGKILL")


def group_of_trials(one: Round) -> None:
    """The same within a group of trials."""
    _killed_in_a_long_trial(one, "long group, then SIGKILL")


def _killed_in_a_long_trial(one: Round, name: str) -> None:
    if not (left := one.missing()):
        return
    long = one.chance.choice(left[len(left) // 2 :])
    journal = one.scratch / "journal.txt"
    journal.unlink(missing_ok=True)
    command = one.training(deeds={long: "long"}, journal=str(journal))
    until = time.monotonic() + PATIENCE
    while command.wait(0.02) is None and long not in _begun(journal)[1] and time.monotonic() < until:
        pass
    finished = _begun(journal)[0]  # a process that has begun a trial has finished those before
    while command.wait(0.1) is None and finished - set(in_a_fork(stored, one.run)["trials"]):
        if time.monotonic() > until:
            break
    one.strike(name, command.code is None and bool(finished))
    command.signal(signal.SIGKILL)
    one.ended(command)
    one.seen |= finished
    one.look()


def _begun(journal: Path) -> tuple[set[int], set[int]]:
    """The trials that processes have finished, and those that they have begun last."""
    last: dict[str, int] = {}
    finished = set()
    for line in journal.read_text().splitlines() if journal.exists() else ():
        process, trial = line.split()
        finished |= {last[process]} if process in last else set()
        last[process] = int(trial)
    return finished, set(last.values())


def another_directory(one: Round) -> None:
    """The learner changes the directory, and --out is relative; perhaps the driver is interrupted or killed."""
    elsewhere = one.scratch / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = one.training(run=one.run.name, chdir=str(elsewhere))
    one.some_time(command)
    one.strike("learner changes the directory", bool(one.segments()) or command.code is not None)
    if number := one.chance.choice([None, None, signal.SIGINT, signal.SIGKILL]):
        command.signal(number)
        one.ended(command)
    else:
        one.ended_well(command)
    if strays := [path.name for path in elsewhere.rglob("*")]:
        raise AssertionError(f"there are files in the learner's directory: {strays[:5]}")


def unreadable_errors(one: Round) -> None:
    """Trials fail with texts that are not Unicode or have megabytes, or with what is no Exception."""
    left = one.missing()
    failing = one.chance.sample(left, min(len(left), one.chance.choice([1, 3, 6])))
    kinds = ("surrogate", "megabytes", "odd")
    code, said = one.ended(one.training(pause=0.0, deeds={trial: one.chance.choice(kinds) for trial in failing}))
    one.strike("unreadable errors", bool(failing))
    _check_failed(one, failing, code, said)


def crashing_trial(one: Round) -> None:
    """Trials crash their process, with one worker; the same command goes past them."""
    left = one.missing()
    failing = one.chance.sample(left, min(len(left), one.chance.choice([1, 1, 2])))
    deeds = {trial: one.chance.choice(["segmentation fault", "exit"]) for trial in failing}
    one.strike("crashing trial, 1 worker", bool(failing))
    for _ in range(1 + 2 * len(failing)):
        code, said = one.ended(one.training(1, deeds=deeds))
        one.look()
        if code in (0, 1):
            _check_failed(one, failing, code, said)
            return
    raise AssertionError(f"the same command does not go past the trials {failing}, it ends with {code}: {said[-500:]}")


def rough_trial(one: Round) -> None:
    """Trials fork, or close all files of their process."""
    left = one.missing()
    rough = one.chance.sample(left, min(len(left), one.chance.choice([1, 3])))
    code, said = one.ended(one.training(deeds={trial: one.chance.choice(["fork", "close"]) for trial in rough}))
    one.strike("learner forks or closes files", bool(rough))
    if code not in (0, 1) or "Unexpected" in said or "Traceback" in said:
        raise AssertionError(f"run ended with {code}: {said[-500:]}")


def stuck_trial(one: Round) -> None:
    """A trial is stuck in C: with a time limit it fails, and without one the command can be stopped."""
    if not (left := one.missing()):
        return
    stuck = one.chance.choice(left)
    journal = one.scratch / "journal.txt"
    journal.unlink(missing_ok=True)
    one.strike("stuck trial")
    if one.chance.random() < 0.5:
        code, said = one.ended(one.training(None, "--trial-timeout", "2", deeds={stuck: "stuck"}))
        _check_failed(one, [stuck], code, said)
        return
    command = one.training(deeds={stuck: "stuck"}, journal=str(journal))
    while command.wait(0.02) is None and stuck not in _begun(journal)[1]:
        pass
    command.signal(signal.SIGINT)
    one.ended(command)
    one.seen |= _begun(journal)[0]


def _check_failed(one: Round, failing: list[int], code: int | None, said: str) -> None:
    """The command says which trials failed, in a few words, and all others are stored."""
    if code == 0 and failing:
        one.silent.append(f"run ended with 0, and {failing} have failed")
    if code != bool(failing) or len(said) > 5000 or "Traceback" in said:
        raise AssertionError(f"run ended with {code}, and said {len(said)} letters: {said[-500:]}")
    if others := set(one.missing()) - set(failing):
        raise AssertionError(f"not only {failing} are missing, but also {sorted(others)}: {said[-500:]}")
    if long := [path.name for path in (one.run / "failures").iterdir() if path.stat().st_size > 100_000]:
        raise AssertionError(f"notes of failures have more than 100 kB: {long}")


# Several at once, and learners that ignore their seeds.


def orphans(one: Round) -> None:
    """The driver gets SIGKILL and is started again at once, with workers left and a learner that ignores its seed."""
    left = []
    for _ in range(one.chance.choice([1, 2, 3])):
        left.append(one.training(workers=2))
        one.some_time(left[-1])
        left[-1].signal(signal.SIGKILL, everyone=False)
        one.strike("orphans, other results", left[-1].wait() == -signal.SIGKILL and bool(left[-1].workers()))
    one.ended(one.training(workers=2))
    for command in left:
        command.gone()


def drivers_without_seed(one: Round) -> None:
    """The same command twice at once, with a learner that ignores its seed."""
    commands = [one.training(), one.training()]
    one.strike("two drivers, other results", commands[0].wait(0.1) is None)
    for command in commands:
        one.ended_well(command)


def stale_listings(one: Round) -> None:
    """Another host compacts the run, and listings that are kept here are older than that."""
    one.partly_done()
    late = one.chance.choice([0, 0, 3, 10**9])  # how many times they are not forgotten when they should be
    found = in_a_fork(cuts.read_behind_listings, one.run, late)
    one.strike("stale listings", found["compacted"] > 1)
    one.silent += found["silent"]


def two_hosts(one: Round) -> None:
    """Another host of the same name, which sees none of this one's processes, cleans up while this one writes."""
    command = one.training(1, sync=0.1, as_other_host=True)
    while command.wait(0.01) is None:
        if list((one.run / "trials").glob(".partial-*")):
            one.do("compact", str(one.run))
            one.strike("two hosts of one name")
            one.look()
    one.ended_well(command)


def power_cut(work: Callable[..., dict[str, Any]], name: str) -> Callable[[Round], None]:
    def cut(one: Round) -> None:
        if work is not cuts.of_a_run:
            one.partly_done()
        made = one.scratch / "cut"
        found = in_a_fork(work, one.run, made, one.chance.random(), one.run_arguments("run"), one.is_random)
        one.strike(name, found["cuts"] > 1)
        one.cuts += found["cuts"]
        if found["bad"]:
            raise AssertionError(f"{len(found['bad'])} of {found['cuts']} cuts: {found['bad'][:3]}")
        one.become(made)

    cut.__doc__ = work.__doc__
    return cut


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
    "long trial, then SIGKILL": long_trial,
    "long group, then SIGKILL": group_of_trials,
    "learner changes the directory": another_directory,
    "unreadable errors": unreadable_errors,
    "crashing trial, 1 worker": crashing_trial,
    "learner forks or closes files": rough_trial,
    "stuck trial": stuck_trial,
    "orphans, other results": orphans,
    "two drivers, other results": drivers_without_seed,
    "stale listings": stale_listings,
    "two hosts of one name": two_hosts,
    "power cut, run": power_cut(cuts.of_a_run, "power cut, run"),
    "power cut, compact": power_cut(cuts.of_a_compact, "power cut, compact"),
    "power cut, merge": power_cut(cuts.of_a_merge, "power cut, merge"),
    "power cut, repair": power_cut(cuts.of_a_repair, "power cut, repair"),
}
MOUNTED = ("full disk", "read-only disk")
GROUPED = ("long group, then SIGKILL",)
RANDOM = ("orphans, other results", "two drivers, other results")
