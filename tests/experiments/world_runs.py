"""Runs of simulated worlds, on disk."""

from pathlib import Path
from typing import Any

import numpy as np

from memfluence.exchange.importing import Labels, import_trials
from memfluence.runs import Run
from memfluence.store import unpack
from simulated import probit_world

N_TRAIN, N_TEST = 120, 100
WORLD = probit_world(np.random.default_rng(0), n_train=N_TRAIN, n_test=N_TEST, n_classes=4, carried=0.6, strength=2.5)


def world_run(directory: Path, trials: int = 200, seed: int = 1, world: Any = WORLD) -> Run:
    """A run of a world in which some training examples carry some test examples."""
    made = world.trials(trials, np.random.default_rng(seed))
    return written(
        directory,
        unpack(made.mask, made.n_train),
        unpack(made.train_correct, made.n_train),
        unpack(made.test_correct, made.n_test),
        world.train_labels,
        world.test_labels,
    )


def written(
    directory: Path,
    mask: np.ndarray,
    train_correct: np.ndarray,
    test_correct: np.ndarray,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
) -> Run:
    """A run of these trials."""
    directory.mkdir(parents=True, exist_ok=True)
    labels = {"train_labels": train_labels, "test_labels": test_labels}
    outcomes = {"train_correct": train_correct, "test_correct": test_correct}
    np.savez(directory / "trials.npz", mask=mask, **outcomes, **labels)  # type: ignore[arg-type]
    names = Labels(train_labels, test_labels, "arrays", None)
    return Run(import_trials([directory / "trials.npz"], directory / "run", labels=names).store)
