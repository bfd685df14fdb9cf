"""What each engine costs: trials per second with one and two workers, and the overhead per trial.

    python benchmarks/engines.py

Overhead is of a learner that does nothing, in groups of 32 on data of 1000 training and 1000 test examples: drawing
subsets, handing out, storing, hearing of it. It is timed from when a tenth of the trials is done to when the last is
stored, so that starting workers (given apart, as the time to the first trial) does not count; median and largest of
several rounds through all engines. For Ray also with one group a task, as when a group takes seconds; otherwise quick
groups are handed out together, as the engine does by itself.

Trials per second are of a learner that waits 20 ms a trial, which shows what the engine allows whatever else the
machine does, and of the built-in mlp on digits, which needs the cores; from when a tenth is done, by the times at
which workers finished each trial, the best of the rounds.
The Ray cluster is one node of two CPUs on this machine. Prints a table, saves JSON and draws the figure of
docs/scaling.md.
"""

import argparse
import json
import os
import platform
import secrets
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

import numpy as np

import memfluence as mf
from memfluence.engines import Event, TrialDone
from memfluence.engines import ray as ray_engine
from memfluence.records import Outcome, Trial

GROUP = 32
WAIT = 0.02  # seconds a trial
BURST = 0.01  # seconds in which a group that is done at once is heard of
WAYS = [  # engine, workers, one group a task
    ("local", 1, False),
    ("processes", 1, False),
    ("processes", 2, False),
    ("ray", 1, False),
    ("ray", 2, False),
    ("ray", 1, True),
    ("ray", 2, True),
]


@dataclass(frozen=True)
class Nothing:
    """Is right everywhere without training."""

    name: str = "nothing"

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def group_size(self, dataset: mf.Dataset, device: str) -> int:
        return GROUP

    def train(
        self, dataset: mf.Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome]:
        right = np.ones(dataset.n_train, bool), np.ones(dataset.n_test, bool)
        for trial in trials:
            yield Outcome(trial.number, trial.kind, trial.mask, *right, seconds=0.0, device="cpu")


@dataclass(frozen=True)
class Waiting(Nothing):
    """Waits instead of training, so that what else the machine does hardly matters."""

    name: str = "waiting"

    def train(
        self, dataset: mf.Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome]:
        for outcome in super().train(dataset, trials, record=record, device=device):
            time.sleep(WAIT)
            yield outcome


class Clock:
    """Hears of trials as the progress line does, and keeps the times."""

    def __init__(self) -> None:
        self.done: list[float] = []
        self.last = 0.0

    def start(self, *, total: int, done: int) -> None:
        self.began = time.monotonic()

    def note(self, message: str) -> None: ...

    def event(self, event: Event) -> None:
        self.last = time.monotonic()
        if isinstance(event, TrialDone):
            self.done.append(self.last)

    def stop(self) -> None: ...


def timed(dataset: Any, learner: Any, trials: int, engine: str, workers: int) -> tuple[float, float, float]:
    """Seconds per trial until all are stored, seconds to the first, and trials per second as workers finish them."""
    with tempfile.TemporaryDirectory() as directory:
        out, clock = Path(directory) / "run", Clock()
        how = {"engine": engine, "workers": workers, "device": "cpu", "out": out, "progress": clock}
        run = mf.run(dataset, learner=learner, trials=trials, **how)
        finished = np.sort(run.store.scan(["finished"]).details["finished"])  # by the workers' clocks, which are one
    begun, later = _after(np.array(clock.done), trials // 10)
    first, rest = _after(finished, trials // 10)
    return (clock.last - begun) / later, clock.done[0] - clock.began, rest / (finished[-1] - first)


def _after(times: np.ndarray, place: int) -> tuple[float, int]:
    """The time at a place, and how many came after it; groups come in bursts: not those that came with it."""
    return times[place], int((times > times[place] + BURST).sum())


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Round after round through all ways, so that what else the machine does falls on all of them."""
    ways = [way for way in WAYS if way[0] in options.engines]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 4)), np.arange(2000) % 2
    data = x[:1000], y[:1000], x[1000:], y[1000:]
    usual = ray_engine._SHORTEST, ray_engine._LONGEST
    nothing: list[list[tuple[float, float, float]]] = [[] for _ in ways]
    rates: dict[str, list[list[float]]] = {name: [[] for _ in ways] for name in ("waiting", "mlp")}
    for round_ in range(options.repeats):
        for number, (engine, workers, alone) in enumerate(ways):
            ray_engine._SHORTEST, ray_engine._LONGEST = (0.0, 0.0) if alone else usual
            nothing[number].append(timed(data, Nothing(), options.nothing, engine, workers))
            if not alone:
                rates["waiting"][number].append(timed(data, Waiting(), options.trials, engine, workers)[2])
                rates["mlp"][number].append(timed("digits", "mlp", options.trials, engine, workers)[2])
        print(f"round {round_ + 1} of {options.repeats}, load {os.getloadavg()[0]:.1f}", flush=True)
    return [
        {
            "engine": engine,
            "workers": workers,
            "one_group_a_task": alone,
            "overhead_ms_per_trial": 1000 * statistics.median(slope for slope, _, _ in nothing[number]),
            "overhead_ms_per_trial_largest": 1000 * max(slope for slope, _, _ in nothing[number]),
            "start_seconds": statistics.median(start for _, start, _ in nothing[number]),
            **{f"{name}_trials_per_second": max(found[number], default=None) for name, found in rates.items()},
        }
        for number, (engine, workers, alone) in enumerate(ways)
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As docs/scaling.md has it."""
    lines = [
        "| engine | workers | overhead, ms a trial: median, largest | start, s | trials/s: waiting | mlp |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row["engine"] + ", one group a task" * row["one_group_a_task"]
        rates = [row[f"{name}_trials_per_second"] for name in ("waiting", "mlp")]
        waiting, mlp = ("" if rate is None else f"{rate:.0f}" for rate in rates)
        lines.append(
            f"| {name} | {row['workers']} | {row['overhead_ms_per_trial']:.2f},"
            f" {row['overhead_ms_per_trial_largest']:.2f} | {row['start_seconds']:.1f} | {waiting} | {mlp} |"
        )
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    names = [f"{row['engine']} {row['workers']}" + (", one group\na task" * row["one_group_a_task"]) for row in rows]
    left.barh(names, [row["overhead_ms_per_trial"] for row in rows], color="#00796b")
    left.axvline(5, color="#b71c1c", linestyle="--", linewidth=1)
    left.text(4.9, 0, "at most, for Ray", color="#b71c1c", ha="right", va="center", fontsize=8)
    left.set(xlim=(0, 5.5), xlabel="overhead, ms per trial (groups of 32)")
    left.invert_yaxis()
    timed = [row for row in rows if not row["one_group_a_task"]]
    for engine in dict.fromkeys(row["engine"] for row in timed):
        mine = [row for row in timed if row["engine"] == engine]
        rates = [row["waiting_trials_per_second"] for row in mine]
        right.plot([row["workers"] for row in mine], rates, "o-", label=engine)
    right.set(xlabel="workers", ylabel="trials per second (20 ms each)", xticks=[1, 2], ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nothing", type=int, default=8000, help="trials of the learner that does nothing")
    parser.add_argument("--trials", type=int, default=640, help="trials of the learner that waits, and of the mlp")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engines", nargs="+", default=["local", "processes", "ray"])
    parser.add_argument("--out", default="benchmarks/results/engines.json")
    parser.add_argument("--figure", default="docs/images/engines.png")
    options = parser.parse_args()

    import ray

    if "ray" in options.engines:
        ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    try:
        rows = measure(options)
    finally:
        ray.shutdown()
    print(table(rows))
    of_ray = [row["overhead_ms_per_trial_largest"] for row in rows if row["engine"] == "ray"]
    if of_ray:
        print(f"Ray's overhead is at most {max(of_ray):.2f} ms a trial")
    results = {
        "group_size": GROUP,
        "nothing_trials": options.nothing,
        "trials": options.trials,
        "wait_seconds": WAIT,
        "repeats": options.repeats,
        "cores": os.cpu_count(),
        "load_at_the_end": os.getloadavg()[0],
        "python": platform.python_version(),
        "ray": ray.__version__,
        "rows": rows,
    }
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(results, indent=2) + "\n")
    draw(rows, Path(options.figure))


if __name__ == "__main__":
    main()
