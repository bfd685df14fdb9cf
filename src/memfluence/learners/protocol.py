"""What a learner is: something that trains a *group* of trials and says, for each, what came out.

A group is the unit that engines, shards and resumes move around. Its size K is fixed by the learner when a run is
created, because a learner that trains K models at once gives the same bits only for the same K. Learners that train
one model after another have K = 1.

A learner whose trials take minutes or hours may be `Resumable` as well: it is then given a place for checkpoints.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from memfluence.datasets import Dataset
from memfluence.records import Failure, Outcome, PartWay, Trial


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


class Checkpoints(Protocol):
    """Where the state of a trial in training is kept, one for a trial; the engine throws it away after the outcome."""

    @property
    def every(self) -> float:
        """Seconds of training between checkpoints."""
        ...

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        """What was saved last, or None. What was made with anything else (a version, a device) is not given."""
        ...

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        """Keep this state in place of the last one; `fraction` of the training is done. Never raises an error."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A learner that can go on within a trial: killed and resumed, the outcome has the bits of an undisturbed one."""

    def resuming(self, checkpoints: Checkpoints | None, report: Callable[[PartWay], None]) -> Learner:
        """The same learner, which uses these checkpoints (None: no checkpoints) and says now and then how far it is.

        It checkpoints every `checkpoints.every` seconds, and when an interrupt or `report` raises what is no
        `Exception`, before it lets that pass.
        """
        ...


class Representation(NamedTuple):
    """What the last, linear layer of one trained model is given, and what the model got right."""

    outcome: Outcome
    train: np.ndarray  # (n_train, n_features) float32
    test: np.ndarray  # (n_test, n_features) float32


@runtime_checkable
class Representing(Protocol):
    """A learner whose models end in a linear layer: it can show what that layer is given."""

    def represent(self, dataset: Dataset, trial: Trial, *, device: str) -> Representation:
        """Train the trial's model and give the representations of all examples, those that it leaves out too."""
        ...
