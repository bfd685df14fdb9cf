"""How much faster memfluence trains many small models than a plain PyTorch loop, on this machine.

    python benchmarks/batched_mlp.py [--trials 4000] [--plain 100] [--repeats 3] [--out FILE.json]

The recipe is the same on both sides: digits (600 train, 1197 test), subsets of 420, a network 64-128-10 with ReLU, SGD
at rate 0.1 with momentum 0.9, batches of 64, 30 epochs, then all 1797 examples scored. The plain side is what a
competent user writes: tensors indexed by a permutation, no DataLoader, nothing wasted; it is timed without its imports,
with one and with two threads, and the better counts. The memfluence side is the whole command `memfluence run` with two
workers, from start-up and imports (about 5 s of CPU time in three processes) to the last stored trial, for as many
trials as the paper ran on CIFAR-100. Everything is repeated and the fastest of each side counts,
so that a busy machine spoils neither. Two ratios follow:

    per core-second   CPU seconds (user + system) per model of the plain loop, over those of memfluence
    wall              seconds per model of one plain process, over those of memfluence with two workers

and the mean test accuracies of both sides with their standard errors.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

KEPT, EPOCHS, BATCH, RATE, MOMENTUM, HIDDEN = 420, 30, 64, 0.1, 0.9, 128
GOALS = {"per_core_second": 6.0, "wall": 10.0}


def plain_loop(models: int, threads: int) -> dict[str, Any]:
    """Train models one after another with torch.nn and torch.optim; seconds per model and test accuracies."""
    import torch
    from torch import nn

    from memfluence import datasets

    torch.set_num_threads(threads)
    data = datasets.load("digits")
    x_train, x_test = (
        torch.tensor(x.reshape(len(x), -1) / 16, dtype=torch.float32) for x in (data.x_train, data.x_test)
    )
    y_train, y_test = torch.tensor(data.y_train), torch.tensor(data.y_test)

    def one_model(seed: int) -> float:
        torch.manual_seed(seed)
        kept = torch.randperm(len(y_train))[:KEPT]
        x, y = x_train[kept], y_train[kept]
        model = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        loss = nn.CrossEntropyLoss()
        for _ in range(EPOCHS):
            order = torch.randperm(KEPT)
            for start in range(0, KEPT, BATCH):
                rows = order[start : start + BATCH]
                optimizer.zero_grad()
                loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
        with torch.inference_mode():
            _train_correct = model(x_train).argmax(1) == y_train
            test_correct = model(x_test).argmax(1) == y_test
        return float(test_correct.float().mean())

    one_model(-1)  # warm up
    wall, core = time.perf_counter(), time.process_time()
    accuracies = [one_model(seed) for seed in range(models)]
    return {
        "models": models,
        "threads": threads,
        "wall_seconds_per_model": (time.perf_counter() - wall) / models,
        "core_seconds_per_model": (time.process_time() - core) / models,
        **mean_and_error(np.array(accuracies)),
    }


def learner_alone(groups: int = 4) -> dict[str, Any]:
    """The MLP learner in this process: no start-up, no store, one thread."""
    from memfluence import datasets
    from memfluence.learners import MLP
    from memfluence.records import Trial
    from memfluence.seeding import generator, random_subset

    data, learner = datasets.load("digits"), MLP()
    size = learner.group_size(data, "cpu")

    def group(number: int) -> list[Trial]:
        numbers = range(number * size, (number + 1) * size)
        return [Trial(k, 0, random_subset(generator(1, "subset", k), data.n_train, KEPT), 1) for k in numbers]

    list(learner.train(data, group(0), record=(), device="cpu"))  # warm up
    core = time.process_time()
    for number in range(groups):
        list(learner.train(data, group(number), record=(), device="cpu"))
    return {"models": groups * size, "core_seconds_per_model": (time.process_time() - core) / (groups * size)}


def memfluence_run(trials: int, workers: int) -> dict[str, Any]:
    """The public command, start to end; its CPU seconds are those of all its processes."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "memfluence", "run", "digits", "--learner", "mlp", "--trials", str(trials)]
        command += ["--workers", str(workers), "--device", "cpu", "--out", f"{folder}/run", "--json"]
        before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - wall
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        accuracies = pq.read_table(f"{folder}/run/trials", columns=["test_accuracy"])["test_accuracy"].to_numpy()
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "models": trials,
        "workers": workers,
        "wall_seconds": wall,
        "core_seconds": core,
        "wall_seconds_per_model": wall / trials,
        "core_seconds_per_model": core / trials,
        **mean_and_error(accuracies),
    }


def mean_and_error(accuracies: np.ndarray) -> dict[str, float]:
    """Mean test accuracy and its standard error over models."""
    error = accuracies.std(ddof=1) / np.sqrt(len(accuracies)) if len(accuracies) > 1 else float("nan")
    return {"test_accuracy": float(accuracies.mean()), "test_accuracy_stderr": float(error)}


def fastest(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """The smallest of each time; the rest is the same in every repeat, since seeds are."""
    return measured[0] | {
        name: min(side[name] for side in measured) for name in measured[0] if name.startswith(("wall_", "core_"))
    }


def in_fresh_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000, help="models that memfluence trains")
    parser.add_argument(
        "--plain", type=int, default=100, help="models that the plain loop trains, for each thread count"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "batched_mlp.json")
    parser.add_argument("--part", choices=["plain", "learner"], help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(plain_loop(options.plain, options.threads) if options.part == "plain" else learner_alone()))
        return

    counts = ("--plain", str(options.plain))
    plain, learners, commands = [], [], []
    for repeat in range(options.repeats):
        plain += [in_fresh_process("--part", "plain", *counts, "--threads", str(threads)) for threads in (1, 2)]
        learners.append(in_fresh_process("--part", "learner"))
        commands.append(memfluence_run(options.trials, options.workers))
        print(f"repeat {repeat + 1} of {options.repeats} done", file=sys.stderr)
    one, two = (fastest([side for side in plain if side["threads"] == threads]) for threads in (1, 2))
    learner, command = fastest(learners), fastest(commands)
    plain_core, plain_wall = (
        min(side[f"{kind}_seconds_per_model"] for side in (one, two)) for kind in ("core", "wall")
    )
    ratios = {
        "per_core_second": plain_core / command["core_seconds_per_model"],
        "wall": plain_wall / command["wall_seconds_per_model"],
        "learner_alone_per_core_second": plain_core / learner["core_seconds_per_model"],
    }
    report = {
        "machine": {"cores": os.cpu_count(), "processor": processor(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("memfluence", "torch", "numpy")},
        "repeats": options.repeats,
        "plain_loop": [one, two],
        "learner_alone": learner,
        "memfluence": command,
        "ratios": ratios,
        "goals": GOALS,
        "reached": {name: ratios[name] >= goal for name, goal in GOALS.items()},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")

    for side in (one, two):
        print(f"plain loop, {side['threads']} thread(s): {describe(side)}")
    print(f"learner alone:           {1e3 * learner['core_seconds_per_model']:7.2f} ms of a core per model")
    print(f"memfluence run, {options.workers} workers: {describe(command)}")
    print(f"per core-second {ratios['per_core_second']:.2f}x (goal {GOALS['per_core_second']:g}x),", end=" ")
    print(f"wall {ratios['wall']:.2f}x (goal {GOALS['wall']:g}x),", end=" ")
    print(f"learner alone {ratios['learner_alone_per_core_second']:.2f}x; written to {options.out}")


def describe(side: dict[str, Any]) -> str:
    return (
        f"{1e3 * side['core_seconds_per_model']:7.2f} ms of a core and"
        f" {1e3 * side['wall_seconds_per_model']:7.2f} ms of wall per model,"
        f" test accuracy {side['test_accuracy']:.4f} +- {side['test_accuracy_stderr']:.4f} (n = {side['models']})"
    )


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
