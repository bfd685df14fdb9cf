"""A soak: 100,000 trials of a learner that does nothing into one run, and what looking after such a run costs.

    python benchmarks/soak.py

Runs them on two workers and watches the driver's memory; then times `memfluence status` (the whole command, from the
shell) and opening the run, before and after `memfluence compact`. As a worker that trains slowly writes a segment a
minute, a copy of the run in segments of 100 trials stands for weeks of work: it is timed, too, and compacted by
processes that are killed after random numbers of changes on the disk, until one is let through. Not a trial may be
missing at any of these moments.

"cold" is `status` without its index, which then reads and verifies every segment; "warm" is once more. Times are on
the wall and of the processors, which says more on a shared machine. Prints all figures, saves them as JSON, and ends
with code 1 if a trial was lost.
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
from pathlib import Path
from typing import Any

import numpy as np

LEARNER = """
def learn(x, y, seed):
    label = y[seed % len(y)]
    return lambda z: label.repeat(len(z))
"""
PER_SEGMENT = 100


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "memfluence", *arguments]


def timed(*arguments: str, cwd: Path) -> tuple[dict[str, float], str]:
    """Wall and processor seconds of a command, and what it printed."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": round(wall, 3), "cpu": round(cpu, 3)}, done.stdout


def memory_of(pid: int) -> int:
    """Resident bytes of one process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def train(here: Path, trials: int) -> dict[str, Any]:
    """Run all trials and take the driver's memory about twice a second."""
    arguments = ["run", "digits", "--learner", "learner.py:learn", "--trials", str(trials), "--workers", "2"]
    began = time.perf_counter()
    process = subprocess.Popen(command(*arguments, "--quiet", "--out", "run"), cwd=here, stdout=subprocess.DEVNULL)
    seen: list[int] = []
    stored: list[int] = []  # trials, by the names of segments
    while process.poll() is None:
        names = [path.name for path in (here / "run" / "trials").glob("[!.]*.parquet")]
        if names:
            seen.append(memory_of(process.pid))
            stored.append(sum(int(name.split("-")[2]) for name in names))
        time.sleep(0.5)
    if process.returncode != 0:
        raise SystemExit(f"The run ended with code {process.returncode}.")
    seconds = time.perf_counter() - began
    at = {f"{share:.0%}": memory for share in (0.1, 0.5, 0.9) for memory in _at(seen, stored, share * trials)}
    return {"seconds": seconds, "trials_per_second": trials / seconds, "driver_bytes": at, "most": max(seen, default=0)}


def _at(seen: list[int], stored: list[int], wanted: float) -> list[int]:
    return [memory for memory, there in zip(seen, stored) if there >= wanted][:1]


def looked_at(here: Path, run: str, trials: int) -> dict[str, Any]:
    """How long `status` takes, without its index and with it, and opening the run; and whether it is all there."""
    (here / run / ".index").unlink(missing_ok=True)
    cold, said = timed("status", run, "--json", cwd=here)
    timed("status", run, cwd=here)  # what was written in the last two seconds is not in the index yet
    warm, _ = timed("status", run, "--json", cwd=here)
    document = json.loads(said)
    script = "import time; wall, cpu = time.perf_counter(), time.process_time(); import memfluence as mf; "
    script += f"mf.open({run!r}); print(time.perf_counter() - wall, time.process_time() - cpu)"
    opened = subprocess.run([sys.executable, "-c", script], cwd=here, capture_output=True, text=True, check=True)
    return {
        "segments": document["segments"],
        "bytes": sum(path.stat().st_size for path in (here / run / "trials").iterdir()),
        "status_cold": cold,
        "status_warm": warm,
        "open": {"wall": float(opened.stdout.split()[0]), "cpu": float(opened.stdout.split()[1])},
        "lost": trials - document["trials"],
        "damaged": len(document["damaged"]),
    }


def shattered(here: Path, run: str, out: str) -> None:
    """A copy of the run in many small segments."""
    from memfluence.store import TrialStore

    source = TrialStore.open(here / run)
    shutil.copytree(here / run, here / out, ignore=shutil.ignore_patterns("*.parquet", ".index"))
    for examples in (here / run).glob("examples-*"):
        shutil.copy(examples, here / out)
    target = TrialStore.open(here / out)
    for name in source.segment_names():
        rows = source.read_rows(name)
        for first in range(0, len(rows), PER_SEGMENT):
            target.write_rows(rows.take(np.arange(first, min(first + PER_SEGMENT, len(rows)))))


def compacted(here: Path, run: str, trials: int, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill `compact` after random numbers of changes on the disk, look each time, then let one through."""
    from memfluence.store import TrialStore

    store, folder = TrialStore.open(here / run), here / run / "trials"
    lost = in_the_middle = 0
    for left in range(kills, 0, -1):
        before = set(folder.iterdir())
        changes = chance.randint(1, max(1, len(before) // (left + 1)))  # so that there is some work left for all kills
        process = subprocess.Popen(command("compact", run), cwd=here, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(before.symmetric_difference(folder.iterdir())) < changes:
            pass
        process.send_signal(signal.SIGKILL)
        in_the_middle += process.wait() == -signal.SIGKILL
        lost = max(lost, trials - len(store.scan().numbers))
    seconds, _ = timed("compact", run, cwd=here)
    return {"killed": in_the_middle, "lost": lost, "to_the_end": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/soak.json")
    options = parser.parse_args()
    here = Path(tempfile.mkdtemp(prefix="memfluence-soak-"))
    found: dict[str, Any] = {"trials": options.trials, "seed": options.seed, "commit": _commit()}
    found["load"] = os.getloadavg()[0]

    def say(what: str, figures: dict[str, Any]) -> None:
        found[what] = figures
        print(f"{what}: {json.dumps(figures)}", flush=True)

    try:
        (here / "learner.py").write_text(LEARNER)
        say("train", train(here, options.trials))
        say("as_written", looked_at(here, "run", options.trials))
        shattered(here, "run", "small")
        say("small_segments", looked_at(here, "small", options.trials))
        say("compact", compacted(here, "small", options.trials, options.kills, random.Random(options.seed)))
        say("compacted", looked_at(here, "small", options.trials))
        seconds, said = timed("verify", "small", "--json", cwd=here)
        say("verify", {**seconds, "clean": json.loads(said)["clean"]})
        scores = []
        for run in ("run", "small"):
            timed("scores", run, "--out", f"{run}.csv", cwd=here)
            scores.append((here / f"{run}.csv").read_bytes())
        found["same_scores"] = scores[0] == scores[1]
    finally:
        shutil.rmtree(here, ignore_errors=True)
    found["lost"] = max(found[part]["lost"] for part in ("as_written", "small_segments", "compact", "compacted"))
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=2) + "\n")
    same = "equal" if found["same_scores"] else "DIFFER"
    print(f"{found['lost']} trials lost, scores {same}; commit {found['commit']}")
    sys.exit(1 if found["lost"] or not found["same_scores"] else 0)


def _commit() -> str:
    root = Path(__file__).parent.parent
    line = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
