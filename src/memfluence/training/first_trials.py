"""The first trials of a campaign: what is wrong from the start is said before hours of training, or ends it.

Said once, on the way of events to the listener: models that are no better than always saying one class, and models
that do not fit the examples that they keep. A campaign whose first trials all fail alike ends.
"""

import math
import re

import numpy as np

from memfluence.datasets import Dataset
from memfluence.engines import Emit, Event, Note, TrialDone, TrialFailed
from memfluence.errors import TrialsFailedError

_ACCURACIES = 5  # trials whose mean accuracies are looked at: one learner's differ little
_FAILURES = 20  # trials that fail alike
# Models fit little of what they keep below this accuracy, or with less than this share of what one class leaves wrong.
_LEAST_KEPT, _LEAST_SHARE = 0.6, 0.25


class FirstTrials:
    """Passes events on and looks at the first outcomes among them. `pending` trials are to be run."""

    def __init__(self, dataset: Dataset, pending: int, emit: Emit, keep_going: bool) -> None:
        self._dataset, self._pending, self._emit, self._keep_going = dataset, pending, emit, keep_going
        self._done: list[TrialDone] = []
        self._failed: list[TrialFailed] = []

    def event(self, event: Event) -> None:
        """Pass an event on. Raises at the last of the first trials that fail alike, and not again."""
        self._emit(event)
        if isinstance(event, TrialDone) and len(self._done) < _ACCURACIES:
            self._done.append(event)
            if len(self._done) == min(_ACCURACIES, self._pending) and (found := self._weakness()):
                self._emit(Note(found))
        elif isinstance(event, TrialFailed) and len(self._failed) < _FAILURES:
            self._failed.append(event)
            if len(self._failed) == _FAILURES and not self._keep_going:
                self._check_failures()

    def _check_failures(self) -> None:
        alike = len({_kind(one.message) for one in self._failed}) == 1
        if alike and not self._done and self._pending > _FAILURES:
            first = self._failed[0]
            raise TrialsFailedError(
                f"The first {_FAILURES} trials failed alike (trial {first.trial}: {first.message}), so the others were"
                " not begun; mend the learner or the data (docs/your-own-model.md), then run again with"
                " `retry_failed=True`, or with `keep_going=True` to go on all the same."
            )

    def _weakness(self) -> str:
        """What the first models are bad at, in one sentence; empty where nothing is wrong."""
        counts = np.bincount(self._dataset.y_test)
        common, n_test = int(counts.argmax()), len(self._dataset.y_test)
        share = float(counts[common]) / n_test
        chance = share + math.sqrt(share * (1 - share) / n_test)  # one standard error: a guess varies
        test = float(np.mean([one.test_accuracy for one in self._done]))
        kept = float(np.mean([one.kept_accuracy for one in self._done]))
        fits = not kept < max(_LEAST_KEPT, share + _LEAST_SHARE * (1 - share))  # it does where kept is NaN
        after = f"after {len(self._done)} trial(s) models are right on"
        if test <= chance and share < 1:
            always = f"{after} {test:.1%} of the test examples, no better than always saying"
            always += f" {self._dataset.class_names[common]!r} ({share:.1%})"
            if fits:
                return f"{always}, although on {kept:.1%} of those that they keep: do the labels belong to the inputs?"
            return f"{always}: more epochs, another learner?"
        if not fits:
            return (
                f"{after} only {kept:.1%} of the examples that they keep; what models do not fit they cannot memorize,"
                " so scores will say little: more epochs, a larger model, another learner?"
            )
        return ""


def _kind(message: str) -> str:
    """What failures have in common that are alike: the type of the error, or a worker's end, whatever its number."""
    return re.sub("[0-9]+", "", message.partition(":")[0])
