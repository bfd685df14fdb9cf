"""Small data and trials for the tests of learners."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from memfluence.datasets import Dataset, from_arrays
from memfluence.learners import Learner
from memfluence.records import Failure, Outcome, Trial

N_TRAIN, N_TEST, N_FEATURES, N_CLASSES = 40, 25, 5, 3
EVERYTHING = ("prediction", "margin", "logit")


def arrays(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Three overlapping clouds: x_train, y_train, x_test, y_test."""
    rng = np.random.default_rng(seed)
    y = np.arange(N_TRAIN + N_TEST) % N_CLASSES
    x = rng.normal(size=(len(y), N_FEATURES)) + 1.5 * rng.normal(size=(N_CLASSES, N_FEATURES))[y]
    return x[:N_TRAIN], y[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:]


def clouds(seed: int = 0, **options: Any) -> Dataset:
    return from_arrays(*arrays(seed), name="clouds", **options)


def pictures(seed: int = 0, n_train: int = 30, n_test: int = 14, **options: Any) -> Dataset:
    """Noisy 8x8 pictures in three colours as bytes, (n, 8, 8, 3): each class has a pattern of its own."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_train + n_test) % N_CLASSES
    x = 80 * rng.normal(size=(N_CLASSES, 8, 8, 3))[y] + 50 * rng.normal(size=(len(y), 8, 8, 3)) + 120
    x = np.clip(x, 0, 255).astype(np.uint8)
    return from_arrays(x[:n_train], y[:n_train], x[n_train:], y[n_train:], name="pictures", **options)


def noise(seed: int = 0) -> Dataset:
    """Labels that have nothing to do with the inputs: what a model gets right beyond chance, it memorized."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(120, 8)), rng.integers(0, 3, size=120)
    return from_arrays(x[:80], y[:80], x[80:], y[80:], name="noise")


def trial_of(number: int, kept: Sequence[int] | np.ndarray, n_train: int = N_TRAIN, kind: int = 0) -> Trial:
    mask = np.zeros(n_train, dtype=bool)
    mask[np.asarray(kept, dtype=int)] = True
    return Trial(number, kind, mask, root=5)


def random_trials(sizes: Sequence[int], n_train: int = N_TRAIN) -> list[Trial]:
    rng = np.random.default_rng(1)
    return [trial_of(number, rng.permutation(n_train)[:size], n_train) for number, size in enumerate(sizes)]


def results(
    learner: Learner, dataset: Dataset, trials: Sequence[Trial], record: Sequence[str] = EVERYTHING
) -> list[Outcome | Failure]:
    return list(learner.train(dataset, trials, record=record, device="cpu"))


def outcomes(
    learner: Learner, dataset: Dataset, trials: Sequence[Trial], record: Sequence[str] = EVERYTHING
) -> list[Outcome]:
    found = results(learner, dataset, trials, record)
    failures = [result for result in found if isinstance(result, Failure)]
    assert not failures, failures[0].message + failures[0].traceback
    return [result for result in found if isinstance(result, Outcome)]


def in_batches(rows: torch.Tensor, batch: int) -> list[torch.Tensor]:
    """The batches of an epoch, as a torch user would write them; the last two are evened out if the last is tiny."""
    parts = list(rows.split(batch))
    if len(parts) > 1 and (len(parts[-1]) == 1 or 8 * len(parts[-1]) < batch):
        parts[-2:] = torch.cat(parts[-2:]).tensor_split(2)
    return parts


def same_bits(first: Outcome, second: Outcome) -> bool:
    return (
        np.array_equal(first.train_correct, second.train_correct)
        and np.array_equal(first.test_correct, second.test_correct)
        and set(first.extras) == set(second.extras)
        and all(first.extras[name].tobytes() == second.extras[name].tobytes() for name in first.extras)
    )
