"""A world for tests of what is stored and read, without a learner."""

from pathlib import Path

import numpy as np

from memfluence.records import Kind, Outcome
from memfluence.store import RunInfo, TrialStore, segment_columns


class SmallWorld:
    """A store-sized world of its own: random masks and outcomes, with labels, written and read without a learner."""

    def __init__(self, n_train: int = 21, n_test: int = 13, n_classes: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n_train, self.n_test = n_train, n_test
        self.y_train = np.arange(n_train) % n_classes
        self.y_test = rng.permutation(np.arange(n_test) % n_classes)
        self.info = RunInfo(
            dataset={
                "name": "labels of a test",
                "fingerprint": "f" * 32,
                "n_train": n_train,
                "n_test": n_test,
                "classes": list(range(n_classes)),
                "class_names": [f"class {k}" for k in range(n_classes)],
            },
            learner={"name": "none"},
            plan={"design": "fixed", "keep": [0.7], "seed": seed, "digest": "p" * 32},
            kinds=(Kind(0.7, round(0.7 * n_train)),),
            trials=100,
            columns=segment_columns(()),
        )

    def outcome(self, number: int) -> Outcome:
        rng = np.random.default_rng([7, number])
        mask = np.zeros(self.n_train, bool)
        mask[rng.permutation(self.n_train)[: round(0.7 * self.n_train)]] = True
        return Outcome(
            trial=number,
            kind=0,
            mask=mask,
            train_correct=mask | (rng.random(self.n_train) < 0.5),
            test_correct=rng.random(self.n_test) < 0.6,
            seconds=0.5,
            host="here",
            device="cpu",
        )

    def create(self, path: Path) -> TrialStore:
        return TrialStore.create(path, self.info, self.y_train, self.y_test)
