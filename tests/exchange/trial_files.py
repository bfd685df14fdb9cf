"""Trials files of the contract, made with NumPy alone, and what tests do to files."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

N_TRAIN, N_TEST, TRIALS = 20, 9, 60


def trials_file(path: Path, rows: slice = slice(None), **changes: object) -> Path:
    """Sixty random trials that keep 14 of 20 (or some rows of them), with some arrays changed or added."""
    rng = np.random.default_rng(3)
    content = {
        "mask": rng.permuted(np.tile(np.arange(N_TRAIN) < 14, (TRIALS, 1)), axis=1),
        "train_correct": rng.random((TRIALS, N_TRAIN)) < 0.7,
        "test_correct": rng.random((TRIALS, N_TEST)) < 0.6,
    }
    content = {name: values[rows] for name, values in content.items()}
    labels = {"train_labels": np.arange(N_TRAIN) % 4, "test_labels": np.arange(N_TEST) % 4}
    np.savez(path, **{**content, **labels, **changes})  # type: ignore[arg-type]
    return path


def everything(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@contextmanager
def full_disk(free: int = 100) -> Iterator[None]:
    """A limit on the size of files stands in for a disk that fills up while a file is written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
