"""A fault campaign: runs that are killed, torn, filled up and confused at random, and come out as if nothing had been.

    python benchmarks/faults.py --rounds 300 --seed 0 --jobs 2

A round begins a run of digits with a small learner, lets one or two faults happen to it (`faulting/happening.py`),
mends what was damaged on purpose (`memfluence repair`), runs the same command to its end and then asks: is `memfluence
verify` clean, are all trials there with the bits of an undisturbed run, are the scores, CSV and Parquet, those of the
undisturbed run byte for byte? A trial that was stored once and is not there after a fault counts as lost, though it
would run again, unless its segment was damaged on purpose. So does one that was finished while a later one was long.
A command that ends with code 0 though trials are missing, or a reader that takes fewer than there are without a word,
counts as silent. Where the learner ignores its seed, two drivers or orphaned workers give a trial different records:
then `repair` must leave a run that is clean, with the scores that it had before.

A fault may come too late to do anything; how often it struck is counted. Segments are written every tenth of a second
rather than every two, so that there is something to harm. Power cuts are recorded: the names, contents and syncs of a
run, `compact`, `merge` or `repair` say what may be on the disk at each moment (`tests/power_cuts.py`), and some of
these states are looked at; one of them goes on as the run.

A command is the real one in a process of its own, with real worker processes; the process is forked from this one,
which has imported everything, because importing would take most of the time. As root, full and read-only disks are
small tmpfs mounts, and another host of the same name is a process that sees none of the others; otherwise the limit on
the size of files (RLIMIT_FSIZE) and permissions. The wall clock is made to jump within the processes and on the files,
not on the machine.

Prints a table, saves it with all rounds as JSON, and ends with code 1 if a round was bad.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # where the recorder of power cuts is

from faulting.happening import FAULTS, GROUPED, MOUNTED, RANDOM
from faulting.rounds import TRIALS, Round, difference, in_a_fork


@dataclass(frozen=True)
class Undisturbed:
    run: Path
    scores: dict[str, bytes]  # by ending


def scores_of(one: Round, run: Path) -> tuple[dict[str, bytes], str]:
    """The scores' files, by ending, and what was said beside them."""
    found, said = {}, ""
    for ending in ("csv", "parquet"):
        file = one.scratch / f"scores.{ending}"
        code, said = one.do("scores", str(run), "--out", str(file))
        if code != 0:
            raise AssertionError(f"scores ended with {code}: {said[-500:]}")
        found[ending] = file.read_bytes()
        file.unlink()
    return found, said


def play(one: Round, names: list[str], undisturbed: Undisturbed) -> dict[str, Any]:
    """Let the faults happen, go on, and look. What is found is in the result; nothing is raised."""
    began = time.monotonic()
    found: dict[str, Any] = {"round": one.number, "faults": names, "lost": TRIALS, "wrong": 0, "other_scores": True}
    try:
        for name in names:
            FAULTS[name](one)
            one.look()
        found |= {"struck": sorted(one.struck), "stored_then_gone": sorted(one.vanished), "cuts": one.cuts}
        found["left_to_run"] = in_a_fork(difference, one.run, undisturbed.run)["lost"]
        code, said = one.do(*one.run_arguments())
        if code == 1 and "--retry-failed" in said:  # a trial whose worker was killed has failed
            code, said = one.do(*one.run_arguments(), "--retry-failed")
        if code != 0:
            raise AssertionError(f"run ended with {code}: {said[-500:]}")
        scores = mended(one) if one.is_random else undisturbed.scores
        code, said = one.do("verify", str(one.run), "--json")
        found |= {"clean": code == 0} | ({} if code == 0 else {"verify": said[-500:]})
        found |= in_a_fork(difference, one.run, undisturbed.run, one.is_random)
        found["other_scores"] = scores_of(one, one.run)[0] != scores
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    found["lost"] += len(one.vanished)
    found["silent"] = one.silent
    wrong = [found[name] for name in ("lost", "wrong", "silent", "other_scores")]
    found["bad"] = bool("error" in found or any(wrong) or not found.get("clean"))
    found["seconds"] = time.monotonic() - began
    return found


def mended(one: Round) -> dict[str, bytes]:
    """The scores of a run that may have different records of a trial, which a reader says and `repair` sets aside."""
    scores, said = scores_of(one, one.run)
    code, problems = one.do("verify", str(one.run))
    if code == 1:
        if "different records" not in said:
            one.silent.append(f"scores says nothing of different records: {problems[-300:]}")
        code, problems = one.do("repair", str(one.run))
    if code != 0:
        raise AssertionError(f"repair ended with {code}: {problems[-500:]}")
    return scores


def campaign(rounds: int, seed: int, jobs: int, say: Callable[[str], None], faults: list[str]) -> dict[str, Any]:
    import pandas  # noqa: F401  what commands load later is loaded before all forks
    import threadpoolctl  # noqa: F401

    from memfluence import datasets, exchange, runs, training  # noqa: F401
    from memfluence.cli import _app  # noqa: F401
    from memfluence.store import upkeep  # noqa: F401

    began = time.monotonic()
    memory = Path("/dev/shm")  # files that are synced to a disk would take most of the time
    here = Path(tempfile.mkdtemp(prefix="memfluence-faults-", dir=memory if os.access(memory, os.W_OK) else None))
    may_mount = _may_mount(here)
    try:
        shutil.copy(Path(__file__).parent / "faulting" / "learner.py", here)
        with Round(-1, here, random.Random(seed)) as first:
            code, said = first.do(*first.run_arguments())
            if code != 0:
                raise SystemExit(f"The undisturbed run failed: {said}")
            undisturbed = Undisturbed(here / "undisturbed", scores_of(first, first.run)[0])
            first.run.rename(here / "undisturbed")
        players = []
        for job in range(jobs):
            players.append(os.fork())
            if players[-1] == 0:
                try:
                    for number in range(job, rounds, jobs):
                        found = _one_round(number, seed, here, may_mount, undisturbed, faults)
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
        "cuts": sum(one.get("cuts", 0) for one in results),
        "table": table_of(results),
        "bad_rounds": sum(one["bad"] for one in results),
        "results": results,
    }


def _one_round(
    number: int, seed: int, here: Path, may_mount: bool, undisturbed: Undisturbed, faults: list[str]
) -> dict[str, Any]:
    chance = random.Random(f"{seed} {number}")
    names = [faults[number % len(faults)]]
    names += [chance.choice(faults)] if chance.random() < 0.3 else []
    with Round(number, here, chance) as one:
        one.learner = "Groups" if set(names) & set(GROUPED) else "learn"
        one.is_random = bool(set(names) & set(RANDOM))
        if may_mount and set(names) & set(MOUNTED):
            one.run.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(one.run)], check=True)
            one.is_mounted = True
        try:
            found = play(one, names, undisturbed)
        finally:
            if one.is_mounted:
                subprocess.run(["umount", "-l", str(one.run)], check=True)
    return found | {"mounted": one.is_mounted}


def table_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each fault, over the rounds that it happened in, and one for all."""
    met = [(name, [one for one in results if name in one["faults"]]) for name in FAULTS]
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
            "other_scores": sum(one["other_scores"] for one in rows),
            "silent": sum(bool(one["silent"]) for one in rows),
        }
        for name, rows in [*met, ("all", results)]
        if rows
    ]


HEADER = (
    "fault",
    "rounds",
    "struck",
    "left to run",
    "trials lost",
    "trials wrong",
    "verify not clean",
    "other scores",
    "silent",
)


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
lost, and so would one that was finished before the long trial in which the driver was killed. "Silent" are rounds in
which a command ended with code 0 though trials were missing, or a reader took fewer trials than there were without a
word.

- Trials are *long* (the driver is killed in the middle), alone or in a group of 8; they fail with texts that are not
  Unicode or have megabytes, and with what is no `Exception`; they crash their process with one worker, fork, close all
  files, change the directory under a relative `--out`, and hang in C, where a time limit or Ctrl-C must end them.
- *Other results* are those of a learner that ignores its seed: two drivers, or a new driver beside the workers that a
  killed one left, may give a trial two records. A reader has to say so, and `repair` must leave a clean run with the
  same scores.
- *Stale listings*: another host compacts the run, and a file system of fsspec still lists what was there before.
- *Two hosts of one name*: the run writes slowly in a container of its own, and `compact` cleans up outside of it.
- *Power cuts*: the names, contents and syncs of a run, `compact`, `merge` or `repair` were recorded, and
  {found["cuts"]:,} states that a cut may leave were looked at, in a file system of which only what was synced is sure
  (strict) and in one that keeps the order of changes (ordered): what was said to be stored is there, what was said to
  be set aside does not come back, and the same command goes on.

Full and read-only disks were {disks}.
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
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--out", default="benchmarks/results/faults.json")
    parser.add_argument("--page", help="write the table as a page, such as docs/faults.md")
    options = parser.parse_args()
    found = campaign(options.rounds, options.seed, options.jobs, lambda line: print(line, flush=True), options.only)
    print()
    for row in [HEADER, *(tuple(row.values()) for row in found["table"])]:
        print("  ".join([f"{row[0]:30s}", *(f"{cell:>13}" for cell in row[1:])]))
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
