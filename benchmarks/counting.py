"""Counting: the factor of the compiled kernels, and of their adders, over NumPy.

All estimates come from one table: for each pair of a training and a test example, how many trials kept the one and got
the other right. Timed here are ways to count it for examples that are drawn at random:

    numpy     unpack the bits to float32 once, then one matrix product: what someone writes who knows NumPy
    popcount  the kernel that counts 64 trials of a pair with one AND and one population count
    adders    the kernel that adds up the rows of each test example's rarer outcome with carry-save adders
    ours      what `JointCounter` does by itself: for each test example the cheaper of the two kernels

Each way gives the same integers, which is checked. The kernels are loaded before the clock runs.

    python benchmarks/counting.py
"""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from batched_mlp import processor
from estimate import best, random_bits
from memfluence.estimators import JointCounter
from memfluence.estimators.counts import kernels
from memfluence.estimators.kernels.counting import thread_count

CASES = {  # n_train, n_test, trials, accuracy in 256ths
    "digits": (1197, 600, 2000, 246),
    "mnist": (60_000, 2000, 2000, 251),
    "cifar100": (50_000, 2000, 4000, 187),
    "imagenet, a class": (1300, 50, 2000, 192),
}
METHODS = {"popcount": "popcount", "adders": "minority", "ours": "auto"}


def numpy_way(mask: np.ndarray, correct: np.ndarray, n_train: int, n_test: int) -> np.ndarray:
    kept = np.unpackbits(mask, axis=1, count=n_train, bitorder="little").astype(np.float32)  # (trials, n_train)
    right = np.unpackbits(correct, axis=1, count=n_test, bitorder="little").astype(np.float32)  # (trials, n_test)
    return (kept.T @ right).astype(np.int32)  # (n_train, n_test)


def measure(n_train: int, n_test: int, trials: int, accuracy: int, repeats: int) -> dict[str, Any]:
    given = random_bits(trials, n_train, 179, 0), random_bits(trials, n_test, accuracy, 1), n_train, n_test
    ways: dict[str, Callable[[], np.ndarray]] = {"numpy": lambda: numpy_way(*given)}
    for name, method in METHODS.items():
        ways[name] = lambda method=method: JointCounter(*given, method=method).block()  # type: ignore[misc]
    exact = numpy_way(*given)
    if differing := [name for name, way in ways.items() if not np.array_equal(way(), exact)]:
        raise SystemExit(f"these ways count otherwise than NumPy: {differing}")
    found: dict[str, Any] = {name: best(way, repeats) for name, way in ways.items()}
    factors = {name: found["numpy"]["core_seconds"] / found[name]["core_seconds"] for name in METHODS}
    return found | {"factor_per_core": factors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the examples of each case")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "counting.json")
    options = parser.parse_args()
    kernels()
    commit = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    found: dict[str, Any] = {
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "processor": processor(),
        "threads": thread_count(),
        "numpy": np.__version__,
        "cases": {},
    }
    for name, (n_train, n_test, trials, accuracy) in CASES.items():
        sizes = max(64, int(n_train * options.scale)), max(16, int(n_test * options.scale)), trials, accuracy
        one = measure(*sizes, options.repeats)
        found["cases"][name] = {"sizes": sizes[:3], "accuracy": accuracy / 256, **one}
        seconds = ", ".join(f"{way} {one[way]['core_seconds']:.3f} s" for way in ("numpy", *METHODS))
        factors = ", ".join(f"{way} {factor:.1f}x" for way, factor in one["factor_per_core"].items())
        print(f"{name}, {sizes[0]} x {sizes[1]}, {trials} trials: {factors} (core seconds: {seconds})")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
