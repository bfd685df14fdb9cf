"""What engines tell the outside; only the progress module prints."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from memfluence.records import PartWay


@dataclass(frozen=True)
class TrialDone:
    trial: int
    test_accuracy: float  # the mean score, where the learner has one of its own
    seconds: float
    kept_accuracy: float = math.nan  # on the training examples that it keeps
    has_scores: bool = False


@dataclass(frozen=True)
class TrialFailed:
    trial: int
    message: str


@dataclass(frozen=True)
class SegmentWritten:
    path: str
    trials: tuple[int, ...]


@dataclass(frozen=True)
class StoredElsewhere:
    """Trials that another process has stored, or failed, before they were handed out here."""

    trials: tuple[int, ...]


@dataclass(frozen=True)
class WorkerLost:
    worker: int
    reason: str
    unsaved: int  # trials that it had done and not stored, which run again


@dataclass(frozen=True)
class Note:
    """Something that the user should know and that changes no result."""

    message: str


Event = TrialDone | TrialFailed | SegmentWritten | StoredElsewhere | WorkerLost | PartWay | Note
Emit = Callable[[Event], None]
