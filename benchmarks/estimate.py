"""Influence from trials: memfluence against the plain NumPy way, and scans at the size of ImageNet.

    python benchmarks/estimate.py                          # on the CPU
    python benchmarks/estimate.py --device cuda --imagenet # the full scan on a GPU

Plain is what the authors' script does: two float32 matrix products, of the mask and of its complement with the
outcomes, NumPy's BLAS on all cores, from boolean arrays that are there already. It is timed on a slice of the test
examples, as wide as its products need to run at full speed, and scaled by their number, because the whole of it takes
10 GB; `--full-baseline` times all of it. memfluence starts from packed trials in memory, or from a run on disk, and
fills a float32 matrix that has been touched before; its kernels are loaded (and compiled, the first time) beforehand.
Both fill the same matrix: sums of a few columns of the two are compared (float32 products round), and 200 columns of
ours, or three classes, with exact counts, to the last bit. Each measurement is a process of its own, whose peak memory
is the kernel's count. Both sides are repeated equally often, and the ratios of best and median times are given.

`--device cuda --imagenet` makes random trials of ImageNet's size on the GPU (1,281,167 x 50,000, 2000 trials, 1000
classes, accuracy 0.75, with some test examples that depend on a training example), then times one scan of all 64
billion pairs for the 10 most helpful training examples of each test example and for all pairs of influence >= 0.15, any
class, without a condition on memorization. The same scan of 1% of the test examples on the CPU must give the same
indices, the same float64 values and the same pairs.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from batched_mlp import processor
from memfluence.estimators import ClassBlock, Influence, arms, influence
from memfluence.estimators.counts import bits_at, kernels
from memfluence.estimators.kernels import int8
from memfluence.records import Kind, Outcome, Trials
from memfluence.store import RunInfo, TrialStore
from memfluence.store.run_file import segment_columns

KINDS = (Kind(0.7, None),)
CASES = {  # n_train, n_test, trials, accuracy in 256ths
    "mnist": (60_000, 10_000, 2000, 251),
    "cifar100": (50_000, 10_000, 4000, 187),
    "imagenet_classes": (1_281_167, 50_000, 2000, 192),
}
SLICE = 2000  # test examples of the plain baseline
INT8_PEAK = 1979e12  # operations a second of an H200's or H100's dense int8 products, by its data sheet
GB = 1e9


def random_bits(trials: int, n: int, of_256: int, seed: int) -> np.ndarray:
    """Packed bits (trials, ceil(n / 8)), each 1 with probability of_256 / 256."""
    rng = np.random.default_rng(seed)
    bits = np.empty((trials, -(-n // 8)), dtype=np.uint8)
    for row in bits:
        row[:] = np.packbits(rng.integers(0, 256, n, dtype=np.uint8) < of_256, bitorder="little")
    return bits


def random_trials(case: str) -> Trials:
    """Trials that keep 70% (179/256) of the training examples; what they got right of these is not asked."""
    n_train, n_test, trials, accuracy = CASES[case]
    mask, correct = random_bits(trials, n_train, 179, 0), random_bits(trials, n_test, accuracy, 1)
    return Trials(np.arange(trials), np.zeros(trials, np.int16), mask, mask, correct, n_train, n_test)


def best(work: Callable[[], Any], repetitions: int) -> dict[str, float]:
    walls, cores = [], []
    for _ in range(repetitions):
        wall, core = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cores.append(time.process_time() - core)
    return {"seconds": min(walls), "core_seconds": min(cores), "median_seconds": float(np.median(walls))}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB


def columns_of(values: np.ndarray) -> list[float]:
    """A few columns' sums, to compare the two ways."""
    last = min(SLICE, values.shape[1]) - 1
    return [float(np.asarray(values[:, j], dtype=float).sum()) for j in (0, 1, last)]


def wrong(trials: Trials, train: np.ndarray, test: np.ndarray, values: np.ndarray) -> int:
    """How many of the values (train, test) are not what exact counts give, rounded to float32 once."""
    kept = (bits_at(trials.mask, train) == 1).astype(np.float32)  # (trials, train)
    right = (bits_at(trials.test_correct, test) == 1).astype(np.float32)  # (trials, test)
    n_in, n_kept, n_right = (part.astype(float) for part in (kept.T @ right, kept.sum(axis=0), right.sum(axis=0)))
    exact = n_in / n_kept[:, None] - (n_right - n_in) / (len(trials) - n_kept)[:, None]
    return int((exact.astype(np.float32) != values).sum())


def plain(case: str, repetitions: int, full: bool) -> dict[str, Any]:
    trials = random_trials(case)
    columns = trials.n_test if full else min(SLICE, trials.n_test)
    mask = np.unpackbits(trials.mask, axis=1, count=trials.n_train, bitorder="little").astype(bool)
    correct = np.unpackbits(trials.test_correct, axis=1, count=columns, bitorder="little").astype(bool)
    del trials
    out = np.ones((columns, mask.shape[1]), dtype=np.float32)  # (test, train), as in the authors' script

    def work() -> None:
        right = correct.T.astype(np.float32)
        kept, left_out = mask.astype(np.float32), (~mask).astype(np.float32)
        np.matmul(right, kept, out=out)
        np.divide(out, np.maximum(kept.sum(axis=0), 1e-10), out=out)
        second = right @ left_out
        second /= np.maximum(left_out.sum(axis=0), 1e-10)
        np.subtract(out, second, out=out)

    found = best(work, repetitions)
    scale = CASES[case][1] / columns
    return {
        **{name: value * scale for name, value in found.items()},
        "test_examples_timed": columns,
        "peak_gb": peak(),
        "column_sums": columns_of(out.T),
    }


def ours(case: str, repetitions: int, folder: str | None) -> dict[str, Any]:
    """From packed trials, or from the store in `folder`, to a float32 matrix."""
    kernels()  # loaded beforehand
    store = TrialStore.open(folder) if folder else None
    trials = None if store else random_trials(case)
    n_train, n_test = CASES[case][:2]
    out = np.ones((n_test, n_train), dtype=np.float32).T

    def work() -> None:
        influence(trials or store.read()[0], KINDS).block(out=out)

    found: dict[str, Any] = best(work, repetitions)
    found |= {"peak_gb": peak(), "output_gb": out.nbytes / GB, "column_sums": columns_of(out)}
    some = np.sort(np.random.default_rng(4).permutation(n_test)[:200])
    found["wrong"] = wrong(trials or random_trials(case), np.arange(n_train), some, out[:, some])
    return found


def classes(case: str, repetitions: int) -> dict[str, Any]:
    """Influence within each of 1000 classes, float32 blocks held all at once."""
    kernels()
    trials = random_trials(case)
    labels = np.random.default_rng(2).integers(0, 1000, trials.n_train), np.arange(trials.n_test) % 1000
    blocks: list[ClassBlock] = []

    def work() -> None:
        blocks.clear()
        blocks.extend(influence(trials, KINDS).all_class_blocks(*labels, dtype=np.float32))

    found: dict[str, Any] = {**best(work, repetitions), "peak_gb": peak()}
    some = [blocks[0], blocks[len(blocks) // 2], blocks[-1]]
    found["wrong"] = sum(wrong(trials, one.train, one.test, one.values) for one in some)
    return found


def write_store(case: str, folder: Path) -> None:
    trials = random_trials(case)
    sizes = {"n_train": trials.n_train, "n_test": trials.n_test}
    data = {"name": "arrays", "fingerprint": "benchmark", "classes": [0], "class_names": ["0"], **sizes}
    info = RunInfo(data, None, None, KINDS, len(trials), columns=segment_columns(()))
    store = TrialStore.create(folder, info, np.zeros(trials.n_train, np.int64), np.zeros(trials.n_test, np.int64))
    unpack = [
        (trials.mask, trials.n_train),
        (trials.train_correct, trials.n_train),
        (trials.test_correct, trials.n_test),
    ]
    for start in range(0, len(trials), 250):
        rows = range(start, min(len(trials), start + 250))
        store.write(
            [
                Outcome(
                    row, 0, *(np.unpackbits(bits[row], count=n, bitorder="little").astype(bool) for bits, n in unpack)
                )
                for row in rows
            ]
        )


def in_a_process(scale: float, *part: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--scale", str(scale), "--part", *part]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def on_cpu(repetitions: int, full: bool, only: list[str], scale: float) -> dict[str, Any]:
    results: dict[str, Any] = {"cores": os.cpu_count(), "processor": processor(), "numpy": np.__version__}
    for case in ("mnist", "cifar100"):
        if case not in only:
            continue
        n_train, n_test, trials, accuracy = CASES[case]
        print(f"{case}: {n_train} x {n_test}, {trials} trials, accuracy {accuracy / 256:.2f}")
        baseline = in_a_process(scale, "plain", case, str(repetitions), "full" if full else "slice")
        memory = in_a_process(scale, "ours", case, str(repetitions))
        with tempfile.TemporaryDirectory() as folder:
            write_store(case, Path(folder) / "run")
            disk = in_a_process(scale, "ours", case, str(repetitions), str(Path(folder) / "run"))
        for found in (memory, disk):
            if not np.allclose(found["column_sums"], baseline["column_sums"], atol=0.05):
                raise SystemExit(f"{case}: the two ways differ: {found['column_sums']}, {baseline['column_sums']}")
            if found["wrong"]:
                raise SystemExit(f"{case}: {found['wrong']} values are not those of exact counts")
        ratio, median = (baseline[name] / memory[name] for name in ("seconds", "median_seconds"))
        of_store = [baseline[name] / disk[name] for name in ("seconds", "median_seconds")]
        extra = memory["peak_gb"] - memory["output_gb"]
        print(
            f"  plain NumPy   {baseline['seconds']:8.2f} s  ({baseline['core_seconds']:.1f} core s, timed on"
            f" {baseline['test_examples_timed']} of {n_test} test examples)\n"
            f"  from memory   {memory['seconds']:8.2f} s  ({memory['core_seconds']:.2f} core s)  {ratio:.0f}x,"
            f" of the medians {median:.0f}x;"
            f" per core-second {baseline['core_seconds'] / memory['core_seconds']:.0f}x;"
            f" peak {extra * 1000:.0f} MB beyond the output\n"
            f"  from the store{disk['seconds']:8.2f} s  {of_store[0]:.0f}x, of the medians {of_store[1]:.0f}x"
        )
        results[case] = {
            "plain": baseline,
            "memory": memory,
            "store": disk,
            "ratio_of_best": ratio,
            "ratio_of_medians": median,
            "extra_gb": extra,
        }
    if "imagenet_classes" in only:
        found = in_a_process(scale, "classes", "imagenet_classes", str(repetitions))
        if found["wrong"]:
            raise SystemExit(f"within classes: {found['wrong']} values are not those of exact counts")
        print(f"same class at ImageNet's size: {found['seconds']:.2f} s, peak {found['peak_gb']:.2f} GB")
        results["imagenet_classes"] = found
    return results


def on_gpu(device: str, scale: float) -> dict[str, Any]:
    import torch

    n_train, n_test, trials, _ = CASES["imagenet_classes"]
    is_gpu = torch.device(device).type == "cuda"
    name = torch.cuda.get_device_name(device) if is_gpu else "torch's CPU"
    print(f"making {trials} trials of {n_train} x {n_test} ...")
    made = random_trials("imagenet_classes")
    rng = np.random.default_rng(3)
    tests = rng.permutation(n_test)[: n_test // 5]  # one in five depends on some training example
    carriers = rng.integers(0, n_train, len(tests))
    for j, i in zip(tests, carriers):
        kept = made.mask[:, i >> 3] >> (i & 7) & 1  # (trials,)
        spoiled = (kept == 0) & (rng.random(trials) < rng.uniform(0, 0.5))
        made.test_correct[:, j >> 3] &= ~(spoiled.astype(np.uint8) << (j & 7)).astype(np.uint8)
    labels = "any class, no condition on memorization"
    few = np.arange(min(20_000, n_train)), np.arange(min(9_000, n_test))
    int8.DeviceScan(arms(made, KINDS), device).scan(*few, k=10, threshold=0.15)  # libraries are loaded, memory is there
    start = time.perf_counter()
    chosen = arms(made, KINDS)
    everything = np.arange(n_train), np.arange(n_test)
    index, value, rows, columns = int8.DeviceScan(chosen, device).scan(*everything, k=10, threshold=0.15)
    seconds = time.perf_counter() - start
    operations = 2.0 * n_train * n_test * trials
    print(
        f"full scan on {name}, from packed trials in the host's memory ({labels}): {seconds:.2f} s,"
        f" {operations / seconds / 1e12:.0f} TOP/s, {operations / seconds / INT8_PEAK:.1%} of the int8 peak,"
        f" {4.0 * n_train * n_test / seconds / 1e9:.0f} GB/s of counts; {len(rows)} pairs"
    )
    slice_ = np.sort(rng.permutation(n_test)[: n_test // 100])
    here = Influence(chosen)
    start = time.perf_counter()
    top = here.top_k(10, slice_)
    pairs = here.at_least(0.15, [(np.arange(n_train), slice_)])
    cpu_seconds = time.perf_counter() - start
    in_slice = np.isin(columns, slice_)
    same = {
        "top_10_indices": bool((top.index == index[slice_]).all()),
        "top_10_values": bool((top.value == value[slice_]).all()),
        "pairs": np.array_equal(np.stack(pairs), np.stack([rows[in_slice], columns[in_slice]])),
    }
    print(f"{len(slice_)} test examples on the CPU in {cpu_seconds:.1f} s, {len(pairs[0])} pairs; the same: {same}")
    return {
        "device": name,
        "scale": scale,
        "torch": torch.__version__,
        "seconds": seconds,
        "tops": operations / seconds / 1e12,
        "share_of_int8_peak": operations / seconds / INT8_PEAK,
        "pairs": len(rows),
        "selection": labels,
        "peak_gpu_gb": torch.cuda.max_memory_allocated() / GB if is_gpu else None,
        "cpu_slice": {"test_examples": len(slice_), "seconds": cpu_seconds, "pairs": len(pairs[0]), "same": same},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--imagenet", action="store_true", help="the full scan at ImageNet's size, on --device cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the examples of each case")
    parser.add_argument("--repetitions", type=int, default=3, help="of each measurement, on both sides")
    parser.add_argument("--full-baseline", action="store_true", help="time the plain way on all test examples")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for case, (n_train, n_test, *rest) in CASES.items():
        CASES[case] = int(n_train * options.scale), int(n_test * options.scale), *rest
    if options.part:
        what, case, repetitions, *rest = options.part
        done = (
            plain(case, int(repetitions), rest == ["full"])
            if what == "plain"
            else classes(case, int(repetitions))
            if what == "classes"
            else ours(case, int(repetitions), *(rest or [None]))
        )
        print(json.dumps(done))
        return
    if options.imagenet and options.device == "cpu":
        parser.error("--imagenet scans on a GPU; add --device cuda (or, to try the code, --device cpu:0 --scale 0.01).")
    name = "estimate_gpu.json" if options.imagenet else "estimate.json"
    results = (
        on_gpu(options.device, options.scale)
        if options.imagenet
        else on_cpu(options.repetitions, options.full_baseline, options.only, options.scale)
    )
    commit = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    made = {
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "repetitions": options.repetitions,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / name).write_text(json.dumps(made | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
