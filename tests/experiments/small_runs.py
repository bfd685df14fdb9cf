"""Runs whose memorized examples and pairs are written into their trials, and trials made by hand."""

from pathlib import Path

import numpy as np

from memfluence.exchange.importing import Labels, import_trials
from memfluence.records import Trials
from memfluence.runs import Run

N_TRAIN, N_TEST, TRIALS = 40, 30, 200
MEMORIZED = (0, 1, 2, 3, 5)  # right exactly when kept; the others are always right
CARRIED = {0: 0, 1: 1, 4: 2, 6: 2}  # test example: the training example that it hangs on


def arrays(trials: int = TRIALS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    mask = rng.random((trials, N_TRAIN)) < 0.7
    train_correct = np.ones((trials, N_TRAIN), bool)
    train_correct[:, MEMORIZED] = mask[:, MEMORIZED]
    test_correct = np.ones((trials, N_TEST), bool)
    for test, train in CARRIED.items():
        test_correct[:, test] = mask[:, train]
    return {"mask": mask, "train_correct": train_correct, "test_correct": test_correct}


def dataset(train_labels: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Features that a nearest neighbour gets mostly right: two numbers, the class in one of them."""
    rng = np.random.default_rng(1)
    y_train = np.arange(N_TRAIN) % 2 if train_labels is None else train_labels
    y_test = np.arange(N_TEST) % 2
    x_train, x_test = (np.stack([y, rng.normal(size=len(y))], 1) for y in (y_train, y_test))
    return x_train + 0.6 * rng.normal(size=x_train.shape), y_train, x_test, y_test


def make_run(
    directory: Path, trials: int = TRIALS, train_labels: np.ndarray | None = None, **changes: np.ndarray
) -> Run:
    directory.mkdir(parents=True, exist_ok=True)
    _, y_train, _, y_test = dataset(train_labels)
    file = directory / "trials.npz"
    np.savez(file, **(arrays(trials) | changes), train_labels=y_train, test_labels=y_test)  # type: ignore[arg-type]
    return Run(import_trials([file], directory / "run", labels=Labels(y_train, y_test, "arrays", None)).store)


def trials_of(masks: np.ndarray, test_correct: np.ndarray) -> Trials:
    """Trials with these masks and correct answers, numbered from 0."""

    def packed(bits: np.ndarray) -> np.ndarray:
        return np.packbits(bits, axis=1, bitorder="little")

    return Trials(
        numbers=np.arange(len(masks)),
        kinds=np.zeros(len(masks), np.int16),
        mask=packed(masks),
        train_correct=packed(masks),
        test_correct=packed(test_correct),
        n_train=masks.shape[1],
        n_test=test_correct.shape[1],
    )
