"""What each engine costs: trials per second with one and two workers, and the overhead per trial.

    python benchmarks/engines.py

Overhead is of a learner that does nothing, in groups of 32 on data of 1000 training and 1000 test examples: drawing
subsets, handing out, storing, hearing of it. It is the slope between a short and a long run, so that starting workers
(the intercept, given apart) does not count; the median of several such pairs. For Ray also with one group a task, as
when a group takes seconds; otherwise quick groups are handed out together, as the engine does by itself.

Trials per second are of the built-in mlp on digits, slopes as well. The Ray cluster is one node of two CPUs on this
machine. Prints a table, saves JSON and draws the figure of docs/scaling.md.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np

import memfluence as mf
from memfluence.engines import ray as ray_engine
from memfluence.records import Outcome, Trial

GROUP = 32
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


def seconds(dataset: Any, learner: Any, trials: int, engine: str, workers: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        mf.run(
            dataset,
            learner=learner,
            trials=trials,
            engine=engine,
            workers=workers,
            device="cpu",
            out=Path(directory) / "run",
            progress=False,
        )
        return time.monotonic() - started


def line(dataset: Any, learner: Any, sizes: tuple[int, int], repeats: int, engine: str, workers: int) -> list[float]:
    """Seconds per trial and seconds to start, medians over pairs of a short and a long run."""
    found = []
    for _ in range(repeats):
        short, long = (seconds(dataset, learner, trials, engine, workers) for trials in sizes)
        slope = (long - short) / (sizes[1] - sizes[0])
        found.append((slope, short - slope * sizes[0]))
    return [statistics.median(column) for column in zip(*found)]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 4)), np.arange(2000) % 2
    data = x[:1000], y[:1000], x[1000:], y[1000:]
    usual = ray_engine._SHORTEST, ray_engine._LONGEST
    rows = []
    print(
        f"{'engine':10s}{'workers':>8s}{'groups a task':>15s}{'overhead ms':>13s}{'start s':>9s}{'mlp trials/s':>14s}"
    )
    for engine, workers, alone in WAYS:
        ray_engine._SHORTEST, ray_engine._LONGEST = (0.0, 0.0) if alone else usual
        slope, start = line(data, Nothing(), options.nothing, options.repeats, engine, workers)
        rate = None
        if not alone:
            rate = 1 / line("digits", "mlp", options.digits, 1, engine, workers)[0]
        rows.append(
            {
                "engine": engine,
                "workers": workers,
                "one_group_a_task": alone,
                "overhead_ms_per_trial": 1000 * slope,
                "start_seconds": start,
                "mlp_trials_per_second": rate,
            }
        )
        tasks = "one" if alone else "-" if engine == "local" else "as it likes"
        said = "" if rate is None else f"{rate:.1f}"
        print(f"{engine:10s}{workers:8d}{tasks:>15s}{1000 * slope:13.3f}{start:9.2f}{said:>14s}", flush=True)
    return rows


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    names = [f"{row['engine']} {row['workers']}" + (", one group\na task" * row["one_group_a_task"]) for row in rows]
    left.barh(names, [row["overhead_ms_per_trial"] for row in rows], color="#00796b")
    left.axvline(5, color="#b71c1c", linestyle="--", linewidth=1)
    left.text(4.6, len(rows) - 0.6, "5 ms", color="#b71c1c", ha="right", va="top", fontsize=8)
    left.set(xscale="log", xlabel="overhead, ms per trial (groups of 32)")
    left.invert_yaxis()
    timed = [row for row in rows if row["mlp_trials_per_second"] is not None]
    for engine in dict.fromkeys(row["engine"] for row in timed):
        mine = [row for row in timed if row["engine"] == engine]
        rates = [row["mlp_trials_per_second"] for row in mine]
        right.plot([row["workers"] for row in mine], rates, "o-", label=engine)
    right.set(xlabel="workers (2 cores)", ylabel="mlp trials per second, digits", xticks=[1, 2], ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nothing", type=int, nargs=2, default=(1600, 16000), metavar=("SHORT", "LONG"))
    parser.add_argument("--digits", type=int, nargs=2, default=(320, 1280), metavar=("SHORT", "LONG"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="benchmarks/results/engines.json")
    parser.add_argument("--figure", default="docs/images/engines.png")
    options = parser.parse_args()

    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    try:
        rows = measure(options)
    finally:
        ray.shutdown()
    worst = max(row["overhead_ms_per_trial"] for row in rows if row["engine"] == "ray")
    print(f"Ray's overhead is at most {worst:.2f} ms a trial")
    results = {
        "group_size": GROUP,
        "nothing_trials": list(options.nothing),
        "digits_trials": list(options.digits),
        "repeats": options.repeats,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "ray": ray.__version__,
        "rows": rows,
    }
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(results, indent=2) + "\n")
    draw(rows, Path(options.figure))


if __name__ == "__main__":
    main()
