"""Ask a run everything under the smallest cap on memory that is not refused; print what it took (`test_memory.py`)."""

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

import memfluence as mf
from memfluence.errors import InputError
from memfluence.estimators import memory
from memfluence.estimators.counts import kernels
from memfluence.exchange import export_trials, import_trials
from memfluence.runs.values import memorization_table

rng = np.random.default_rng(0)
trials, n_train, n_test = 200, 4000, 2000
labels = [rng.integers(0, 3, n) for n in (n_train, n_test)]
mask = rng.random((trials, n_train)).argsort(axis=1) < n_train // 2
right = [rng.random((trials, n)) < 0.7 for n in (n_train, n_test)]
columns = {}
for split, n, correct, label in zip(("train", "test"), (n_train, n_test), right, labels):
    columns[f"{split}_prediction"] = np.where(correct, label, (label + 1) % 3).astype(np.uint8)
    for name in ("margin", "logit"):
        columns[f"{split}_{name}"] = rng.normal(size=(trials, n)).astype(np.float16)
np.savez(
    "trials.npz",
    mask=mask,
    train_correct=right[0],
    test_correct=right[1],
    train_labels=labels[0],
    test_labels=labels[1],
    **columns,
)
import_trials(["trials.npz"], "run")
del mask, right, columns
scores = np.zeros((n_train, n_test), np.float32)
np.save("scores.npy", scores)
del scores
small = mf.open("run")
asked = {
    "attack": lambda run: run.attack(resamples=20),
    "mislabels": lambda run: run.find_mislabels(),
    "stability": lambda run: run.pair_stability(resamples=4),
    "cross-fit": lambda run: run.cross_fitted_pairs(infl=0.3),
    "plan": lambda run: run.trials_needed(stderr=0.05, infl=0.3),
    "margins": lambda run: memorization_table(run, outcome="margin"),
    "adjusted": lambda run: memorization_table(run, estimator="adjusted"),
    "judge": lambda run: mf.judge(run, "scores.npy", test=range(300), outcome="correct"),
    "datamodels": lambda run: mf.datamodels(run, [0, 1], outcome="correct"),
    "c-scores": lambda run: mf.c_scores(run),
    "export": lambda run: export_trials(run, "again.npz"),
}
assert kernels() is not None
for ask in asked.values():
    ask(small)  # whatever libraries are loaded
del small


def smallest_cap(ask: Callable[[mf.Run], object]) -> tuple[int, int]:
    """(refusals, cap) of what is asked, following the advice of each refusal."""
    cap = memory._resident()
    for refused in range(30):
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        said = None
        try:
            ask(mf.open("run", memory=cap))
        except InputError as error:
            said = re.search(r"allow at least ([0-9.]+) ([MG])B", str(error))
            if said is None:
                raise
        if said is None:
            return refused, cap
        unit, rounding = {"M": (1e6, 0.1), "G": (1e9, 0.01)}[said[2]]
        cap = int((float(said[1]) + rounding) * unit)
    raise AssertionError("the advice does not help")


for name, ask in asked.items():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is held from before would hide what is asked for
    start = memory._resident()
    refused, cap = smallest_cap(ask)
    peak = int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    print(name, refused, start, peak, cap)
