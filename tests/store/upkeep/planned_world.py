"""A run of a real plan, whose trials are made without a learner."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from memfluence import designs
from memfluence.records import Outcome
from memfluence.store import TrialStore, segment_columns
from small_world import SmallWorld


class PlannedWorld(SmallWorld):
    """`SmallWorld` with masks that its plan gives."""

    def __init__(
        self, design: str = "fixed", keep: Any = 0.7, groups: Any = None, trials: int = 12, record: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self.groups = None if groups is None else designs.groups_from(groups, self.n_train, {}, self.y_train)
        self.design = designs.make(design, n_train=self.n_train, keep=keep, seed=5, groups=self.groups)
        plan = {**self.design.plan.to_json(), "digest": self.design.plan.digest}
        self.info = dataclasses.replace(self.info, plan=plan, kinds=self.design.kinds, trials=trials)
        self.info = dataclasses.replace(self.info, record=record, columns=segment_columns(record))

    def outcome(self, number: int, **changes: Any) -> Outcome:
        trial = self.design.trial(number)
        rng = np.random.default_rng([7, number])
        made = Outcome(
            trial=number,
            kind=trial.kind,
            mask=trial.mask,
            train_correct=trial.mask | (rng.random(self.n_train) < 0.5),
            test_correct=rng.random(self.n_test) < 0.6,
            seconds=0.5,
            host="here",
            device="cpu",
        )
        return dataclasses.replace(made, **changes)

    def create(self, path: Path) -> TrialStore:
        groups = None if self.groups is None else (self.groups.codes, self.groups.names)
        return TrialStore.create(path, self.info, self.y_train, self.y_test, groups=groups)

    def filled(self, path: Path, per_segment: int = 4) -> TrialStore:
        """A run with all its trials, in several segments."""
        store = self.create(path)
        for first in range(0, self.info.trials, per_segment):
            last = min(first + per_segment, self.info.trials)
            store.write([self.outcome(number) for number in range(first, last)])
        return store


def with_one_bit_changed(mask: np.ndarray) -> np.ndarray:
    changed = mask.copy()
    changed[3] = not changed[3]
    return changed


def all_files(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
