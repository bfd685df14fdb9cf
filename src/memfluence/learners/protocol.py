"""The contract of learners: a learner trains a *group* of trials and gives the outcome of each.

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
        """The number of trials that are trained at once on these data and this device ("auto", "cpu", "cuda")."""
        ...

    def train(
        self, dataset: Dataset, trials: Sequence[Trial], *, record: Collection[str], device: str
    ) -> Iterator[Outcome | Failure]:
        """Train each trial on its kept examples and yield its outcome as soon as it is known.

        `record` names the optional outcomes to give as well ("prediction", "margin", "logit"). Where nobody chose, it
        holds "given": margins, if the learner has scores. A trial that goes wrong yields a `Failure`; raising ends the
        whole group. Nothing may be fitted on an example that the trial leaves out.
        """
        ...


class Checkpoints(Protocol):
    """The place for states of trials in training, one for each trial; the engine deletes it after the outcome."""

    @property
    def every(self) -> float:
        """Seconds of training between checkpoints."""
        ...

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        """The state that was saved last; None if there is none, or if it was made with another version or device."""
        ...

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        """Keep this state in place of the last one; `fraction` of the training is done. Never raises an error."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A learner that can go on within a trial: killed and resumed, the outcome has the bits of an undisturbed one."""

    def resuming(self, checkpoints: Checkpoints | None, report: Callable[[PartWay], None]) -> Learner:
        """The same learner, which uses these checkpoints (None: no checkpoints) and says now and then how far it is.

        It saves a checkpoint every `checkpoints.every` seconds. It also saves one when an interrupt or `report` raises
        a `KeyboardInterrupt`, by which engines stop, and then lets that pass.
        """
        ...


class Representation(NamedTuple):
    """The inputs of one trained model's last, linear layer, and the model's outcome."""

    outcome: Outcome
    train: np.ndarray  # (n_train, n_features) float32
    test: np.ndarray  # (n_test, n_features) float32


@runtime_checkable
class Representing(Protocol):
    """A learner whose models end in a linear layer: it can show what that layer is given."""

    def represent(self, dataset: Dataset, trial: Trial, *, device: str) -> Representation:
        """Train the trial's model and give the representations of all examples, those that it leaves out too."""
        ...
