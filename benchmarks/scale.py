"""What runs of many trials, examples and files take, beside what one would write without memfluence.

    python benchmarks/scale.py --out benchmarks/results/scale.json

Worlds are made up: models guess with a generator of their own, so that only what comes after training takes time.

- `trials`: 500 trials of 220,000 training examples; `status` and `verify`.
- `segments`: 20,010 trials, each in a segment of its own, as one-trial jobs leave them; `status`, and `compact`.
- `wide`: the lists of the report for 200,000 x 20,000 examples in 10 classes with 500 trials.
- `classes`: the same for 500,000 x 1,000 in 50 classes with 100 trials.

Beside them stand plain ones: PyArrow's dataset for `status` and `compact`; for `verify` a loop that reads each file,
takes its digest and draws its masks; for the lists NumPy's sorting of whole rows and `corrcoef`, on one class, times
the classes. They check less: plain `status` and `compact` verify no byte. Each is measured in a process of its own,
alone; `ratio` is by core seconds, which other work on the machine disturbs least.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import memfluence as mf
from memfluence.datasets import from_arrays
from memfluence.report.explorer.influences import CARRIERS, COMPARED_AT_ONCE, HARMFUL, SIMILAR, TESTS, influence_details
from memfluence.runs.status import status_of
from memfluence.store import INDEXED, TrialStore, unpack
from memfluence.store.segments import encode_table, segment_name
from memfluence.store.upkeep.verifying import design_of

# training examples, test examples, classes, trials
SIZES = {
    "trials": (220_000, 1_000, 10, 500),
    "segments": (1_200, 600, 10, 20_010),
    "wide": (200_000, 20_000, 10, 500),
    "classes": (500_000, 1_000, 50, 100),
}


def world(path: Path, n_train: int, n_test: int, classes: int, trials: int) -> None:
    """A run of models that are right on four of five examples."""
    labels = np.arange(n_train) % classes, np.arange(n_test) % classes
    data = from_arrays(np.zeros((n_train, 1), np.uint8), labels[0], np.zeros((n_test, 1), np.uint8), labels[1])

    def guess(x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
        def predict(asked: np.ndarray) -> np.ndarray:
            right = labels[0] if len(asked) == n_train else labels[1]
            draws = np.random.default_rng(seed).random(len(asked), np.float32)
            return np.where(draws < 0.8, right, (right + 1) % classes)

        return predict

    mf.run(data, learner=guess, trials=trials, out=path, progress=False)


def taken_apart(path: Path) -> None:
    """Every trial into a segment of its own."""
    store = TrialStore.open(path)
    for name in store.segment_names():
        rows = store.read_rows(name)
        for at in range(len(rows)):
            one = rows.take(np.array([at]))
            content = encode_table(one.table, store.info.identity)
            (path / "trials" / segment_name(one.numbers.tolist(), content)).write_bytes(content)
        (path / "trials" / name).unlink()


# ---- ours


def status(path: Path) -> Any:
    (path / ".index").unlink(missing_ok=True)
    return status_of(TrialStore.open(path))["test_accuracy"]


def status_again(path: Path) -> Any:
    return status_of(TrialStore.open(path))["test_accuracy"]


def verify(path: Path) -> Any:
    return mf.verify(path).trials


def compact(path: Path) -> Any:
    return mf.compact(path).segments


def lists(path: Path) -> Any:
    details = influence_details(mf.open(path), None, lambda share: None)
    return details.carriers.index[:, 0].tolist()


# ---- plain ones


def plain_status(path: Path) -> Any:
    table = ds.dataset(path / "trials", format="parquet").to_table(["trial", *INDEXED])
    return float(table["test_accuracy"].to_numpy().mean())


def plain_verify(path: Path) -> Any:
    store, seen = TrialStore.open(path), 0
    design = design_of(store)
    for file in sorted((path / "trials").iterdir()):
        content = file.read_bytes()
        if not file.stem.endswith(hashlib.blake2b(content, digest_size=16).hexdigest()):
            raise SystemExit(f"{file} is damaged")
        table = pq.read_table(file)
        for number, mask in zip(table["trial"].to_pylist(), table["mask"].to_pylist()):
            drawn = design.trial(number).mask if design else None
            seen += bool(np.array_equal(drawn, unpack(np.frombuffer(mask, np.uint8), store.info.n_train)))
    return seen


def plain_compact(path: Path) -> Any:
    pq.write_table(ds.dataset(path / "trials", format="parquet").to_table(), path / "joined.parquet")
    (path / "joined.parquet").unlink()


def plain_lists(path: Path) -> Any:
    """Of the first class: each row, and each column, sorted for the few that are shown."""
    run = mf.open(path)
    rows, columns = (np.flatnonzero(codes == 0) for codes in run.label_codes)
    values = run.influence(columns, train=rows)
    found = [np.argsort(-values, axis=1)[:, :TESTS]]
    found += [np.argsort(sign * values, axis=0)[:k] for sign, k in ((-1, CARRIERS), (1, HARMFUL))]
    if values.size <= COMPARED_AT_ONCE:
        alike = np.corrcoef(values.astype(np.float32), dtype=np.float32)
        found += [np.argsort(-alike[at : at + 1000], axis=1)[:, :SIMILAR] for at in range(0, len(alike), 1000)]
    return len(found)


def most_memory() -> int:
    """Kilobytes that this process has held at most; `ru_maxrss` would count what its parent held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measured(work: Callable[[Path], Any], path: Path) -> tuple[dict[str, float], Any]:
    """What one call takes in this process, which has done nothing else."""
    wall, core = time.perf_counter(), time.process_time()
    answer = work(path)
    return {
        "seconds": round(time.perf_counter() - wall, 3),
        "core_seconds": round(time.process_time() - core, 3),
        "megabytes": round(most_memory() / 1e3),
    }, answer


def alone(work: Callable[[Path], Any], path: Path) -> tuple[dict[str, float], Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, work, path).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of examples and trials, for a try")
    parser.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scale.json")
    options = parser.parse_args()
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load_average": round(os.getloadavg()[0], 1),
        "scale": options.scale,
    }

    def note(
        name: str, ours: tuple[dict[str, float], Any], plain: tuple[dict[str, float], Any], times: int = 1
    ) -> None:
        ratio = times * plain[0]["core_seconds"] / max(1e-3, ours[0]["core_seconds"])
        found[name] = {"ours": ours[0], "plain": plain[0], "plain_times": times, "ratio": round(ratio, 2)}
        print(f"{name:16} {json.dumps(found[name])}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            n_train, n_test, classes, trials = SIZES[name]
            scaled = [max(20 * classes, round(options.scale * n)) for n in (n_train, n_test)]
            path = Path(folder) / name
            world(path, *scaled, classes, max(20, round(options.scale * trials)))
            if name in ("trials", "segments"):
                if name == "segments":
                    taken_apart(path)
                plain, ours = alone(plain_status, path), alone(status, path)
                if abs(plain[1] - ours[1]) > 1e-9:
                    raise SystemExit(f"{name}: the accuracies differ: {plain[1]} and {ours[1]}")
                note(f"{name}: status", ours, plain)
                note(f"{name}: status again", alone(status_again, path), plain)
            if name == "trials":
                plain, ours = alone(plain_verify, path), alone(verify, path)
                if plain[1] != ours[1]:
                    raise SystemExit(f"{plain[1]} masks are as planned, and verify says {ours[1]}")
                note(f"{name}: verify", ours, plain)
            if name == "segments":
                plain = alone(plain_compact, path)
                note(f"{name}: compact", alone(compact, path), plain)
            if name in ("wide", "classes"):
                note(f"{name}: lists", alone(lists, path), alone(plain_lists, path), classes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
