"""Time: how much there is, what it is spent on, and a listener that ends training when it is over."""

import math
import re
import time

from memfluence.engines import Event, PartWay, TrialDone, TrialFailed
from memfluence.errors import InputError
from memfluence.progress import ProgressListener

__all__ = ["Until", "base_trials", "more_repeats", "reserve", "seconds_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}
BASE_SHARE = 0.4  # of the time, for the trials that everything else is made from
FEWEST = 40  # two halves of the fewest trials that say anything


def seconds_of(budget: str) -> float:
    """'30m' -> 1800.0; '90', '90s', '1.5h'."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", budget.strip())
    if match is None:
        raise InputError(f"The budget must be a time such as 30m, 90s or 1.5h, or 0. Got {budget!r} instead.")
    return float(match[1]) * _UNITS[match[2]]


def base_trials(budget: float, seconds_each: float, wanted: int) -> int:
    """How many trials to begin with: what a share of the time allows, and no more than are wanted."""
    affordable = BASE_SHARE * budget / seconds_each if seconds_each > 0 else math.inf
    return int(min(max(affordable, FEWEST), wanted))


def more_repeats(there: int, most: int, left: float, seconds_each: float) -> int:
    """How many repeats to have in the end, given what one more of them costs."""
    if left <= 0 or not seconds_each > 0:
        return there
    return max(there, min(most, there + int(left / seconds_each)))


class Until:
    """Passes everything on to another listener, and ends the training once when the time is over."""

    def __init__(self, inner: ProgressListener, deadline: float) -> None:
        self._inner = inner
        self.deadline = self.end = deadline  # of training, which may have to leave some time; and of everything
        self.expired = False
        self.group = 1  # trials that are trained at once: a group that is complete is not thrown away

    @property
    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.monotonic()

    def start(self, *, total: int, done: int) -> None:
        self._inner.start(total=total, done=done)

    def note(self, message: str) -> None:
        self._inner.note(message)

    def event(self, event: Event) -> None:
        self._inner.event(event)
        ended = isinstance(event, TrialDone | TrialFailed) and (event.trial + 1) % self.group == 0
        alone = self.group == 1 or isinstance(event, PartWay)  # one that says how far it is keeps a checkpoint
        if (alone or ended) and not self.expired and self.left <= 0:  # once: what is complete is stored, with events
            self.expired = True
            raise KeyboardInterrupt

    def stop(self) -> None:
        self._inner.stop()


def reserve(n_train: int, n_test: int, readings: int, budget: float) -> float:
    """Seconds to keep for what is only read and drawn: a minute for CIFAR-100's pairs, on two cores, and a little."""
    return min(0.25 * budget, readings * (5 + 1e-7 * n_train * n_test))
