"""`Retraining`: the models that an experiment needs, as data that is written beside the store they are trained into."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.experiments._result import plain
from memfluence.records import Trials
from memfluence.store import unpack

__all__ = ["Retraining", "blocks", "correct_by_trial"]


@dataclass(frozen=True, eq=False)
class Retraining:
    """Which examples each model keeps, and what it is for. Model k is trial k of an explicit design with this seed."""

    experiment: str
    masks: np.ndarray  # (trials, n_train) bool
    purposes: tuple[Mapping[str, Any], ...]  # of each trial: {"arm": "random", "threshold": 0.3, "repeat": 2}
    settings: Mapping[str, Any]  # what it was made from and with
    seed: int = 0
    known_by: int | None = None  # the first trials, of the repeats that it was begun with; None: all

    def rows(self, **purpose: Any) -> list[int]:
        """The trials that are for this."""
        return [
            number
            for number, one in enumerate(self.purposes)
            if all(one.get(name) == value for name, value in purpose.items())
        ]

    def to_json(self) -> dict[str, Any]:
        """Masks are bits in little order, row after row, in base64."""
        packed = np.packbits(self.masks, axis=1, bitorder="little")
        found: dict[str, Any] = plain(
            {
                "experiment": self.experiment,
                "settings": self.settings,
                "seed": self.seed,
                "known_by": self.known_by,
                "purposes": self.purposes,
                "n_train": self.masks.shape[1],
                "masks": [base64.b64encode(row.tobytes()).decode() for row in packed],
            }
        )
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Retraining":
        """The inverse of `to_json`."""
        rows = [np.frombuffer(base64.b64decode(row), np.uint8) for row in document["masks"]]
        masks = np.unpackbits(np.stack(rows), axis=1, count=document["n_train"], bitorder="little").astype(bool)
        return cls(
            document["experiment"],
            masks,
            tuple(document["purposes"]),
            document["settings"],
            int(document["seed"]),
            document["known_by"],
        )


def blocks(repeats: int, begun: Sequence[int]) -> list[range]:
    """Repeats in the order in which they were asked for: those that a directory was begun with, then what was added.

    `begun` holds how many there were each time; repeats are never fewer than before.
    """
    ends = sorted({*begun, max(repeats, *begun, 0)})
    return [range(start, end) for start, end in zip([0, *ends], ends)]


def correct_by_trial(plan: Retraining, trials: Trials) -> dict[int, np.ndarray]:
    """What each model that is there got right, by its number, (n_test,) bool each."""
    correct = unpack(trials.test_correct, trials.n_test)  # (trials, n_test)
    return {int(number): row for number, row in zip(trials.numbers, correct) if number < len(plan.purposes)}
