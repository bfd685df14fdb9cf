"""What a learner is: something that trains a *group* of trials and says, for each, what came out.

A group is the unit that engines, shards and resumes move around. Its size K is fixed by the learner when a run is
created, because a learner that trains K models at once gives the same bits only for the same K. Learners that train
one model after another have K = 1.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from memfluence.datasets import Dataset
from memfluence.records import Failure, Outcome, Trial

__all__ = ["Learner"]


@runtime_checkable
class Learner(Protocol):
    """The contract between learners and engines; `tests/learners/test_learner_contract.py` checks it."""

    @property
    def name(self) -> str:
        """Short, for people and for the default name of a run."""
        ...

    def describe(self) -> dict[str, Any]:
        """JSON-able identity: everything that changes the outcomes. A run refuses to go on when it differs."""
        ...

    def group_size(self, dataset: Dataset, device: str) -> int:
        """How many trials are trained at once on these data and this device ("auto", "cpu", "cuda")."""
        ...

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        """Train each trial on its kept examples and yield its outcome as soon as it is known.

        `record` names the optional outcomes to give as well ("prediction", "margin", "logit"). A trial that goes
        wrong yields a `Failure`; raising ends the whole group. Nothing may be fitted on an example that the trial
        leaves out.
        """
        ...
