"""The work that engines share out: groups of trials, and how one group is run and stored."""

import importlib.metadata
import os
import platform
import time
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memfluence.datasets import Dataset
from memfluence.designs import Design
from memfluence.engines.environment import uninterrupted
from memfluence.engines.events import Emit, Note, SegmentWritten, TrialDone, TrialFailed
from memfluence.errors import LearnerError, MemfluenceError
from memfluence.learners import Learner, Resumable
from memfluence.records import Failure, Outcome, Trial
from memfluence.store import Location, SegmentWriter, TrialStore


@dataclass(frozen=True)
class Group:
    """Trials [number * K, (number + 1) * K), and which of them are still wanted."""

    number: int
    wanted: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Work:
    """All that a worker anywhere needs to run any group."""

    dataset: Dataset
    learner: Learner
    design: Design
    run: Location  # a path, or a URI that workers elsewhere can open
    identity: Mapping[str, str]  # of the run: another process may have put a different one there since
    group_size: int
    record: tuple[str, ...]
    device: str
    checkpoint_every: float = 0.0  # seconds of training; 0 for no checkpoints

    @property
    def has_checkpoints(self) -> bool:
        """Whether trials in training are kept now and then."""
        learner = self.learner
        is_resumable = isinstance(learner, Resumable) and learner.resuming(None, lambda part: None) is not learner
        return bool(self.checkpoint_every) and is_resumable


def groups_of(trials: Iterable[int], group_size: int) -> list[Group]:
    """The groups that hold these trials, ascending."""
    wanted: dict[int, list[int]] = {}
    for trial in trials:
        wanted.setdefault(trial // group_size, []).append(trial)
    return [Group(number, tuple(sorted(members))) for number, members in sorted(wanted.items())]


class GroupRunner:
    """Runs groups one after another and stores what comes out. Use as a context: leaving it stores the rest."""

    def __init__(self, work: Work, emit: Emit) -> None:
        self._work = work
        self._emit = emit
        self._store = TrialStore.open(work.run, work.identity)
        self._writer = SegmentWriter(self._store, self._stored, self._say, installed_versions())
        self._checkpoints = self._store.checkpoints(work.checkpoint_every, self._say)
        self._learner = work.learner
        if isinstance(work.learner, Resumable):
            self._learner = work.learner.resuming(self._checkpoints if work.checkpoint_every else None, emit)
        self._host, self._process = platform.node(), os.getpid()
        self._has_scores: bool | None = None  # the outcomes of this run; None until it is known

    def __enter__(self) -> "GroupRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._end_if_forked()
        with uninterrupted():
            self._writer.close()

    def _end_if_forked(self) -> None:
        """A process that a learner has forked comes back from it as this one; it must not go on as the program."""
        if os.getpid() != self._process:
            os._exit(0)

    def flush(self) -> None:
        """Store what is complete."""
        with uninterrupted():
            self._writer.flush()

    def run(self, group: Group) -> None:
        """Train the group; a learner that raises costs its own trials only."""
        left = set(group.wanted)
        try:
            for result in self._learner.train(
                self._work.dataset,
                trials_of(self._work.design, group, self._work.group_size),
                record=self._work.record,
                device=self._work.device,
            ):
                self._end_if_forked()
                if result.trial in left:  # padding of a last group, and trials done before, are thrown away
                    left.discard(result.trial)
                    self._take(result)
            self._end_if_forked()
        except (MemfluenceError, KeyboardInterrupt):
            raise  # about the learner as a whole (it cannot give margins, say), or from who stops us
        except BaseException as error:
            self._end_if_forked()
            self.fail(left, f"{type(error).__name__}: {error}", traceback.format_exc())
        else:
            self.fail(left, "the learner gave no outcome for this trial")
        self._writer.flush_if_due()

    def _say(self, message: str) -> None:
        self._emit(Note(message))

    def _stored(self, path: Location, trials: tuple[int, ...]) -> None:
        self._checkpoints.remove(trials)
        self._emit(SegmentWritten(path=str(path), trials=trials))

    def _take(self, result: Outcome | Failure) -> None:
        if isinstance(result, Failure):
            self.fail([result.trial], result.message, result.traceback)
            return
        info = self._store.info
        if info.says_record:
            self._has_scores = info.outcome == "score"
        elif self._has_scores is None:
            self._has_scores = result.has_scores
        if result.has_scores != self._has_scores:
            raise LearnerError(
                f"trial {result.trial} gives a score of the learner's own, where right and wrong are recorded; leave"
                " out `record` if it was given, otherwise give a learner that predicts classes in all trials."
                if result.has_scores
                else f"trial {result.trial} gives right and wrong, and trials before it a score of the learner's own."
            )
        self._writer.add(replace(result, host=self._host, process=os.getpid(), finished=time.time()))
        on_kept, _, on_test = result.means
        self._emit(TrialDone(result.trial, on_test, result.seconds, on_kept, result.has_scores))

    def fail(self, trials: Collection[int], message: str, trace: str = "") -> None:
        """Leave a note of a failure for each trial."""
        for trial in sorted(trials):
            failure = Failure(trial, message, trace)
            self._store.write_failure(failure)
            # After an error of the learner's a trial starts over; one whose worker was killed keeps its checkpoint.
            self._checkpoints.remove([trial])
            self._emit(TrialFailed(trial, failure.summary))


def trials_of(design: Design, group: Group, group_size: int) -> Sequence[Trial]:
    """All K trials of the group, so that a batched learner always sees the same shapes.

    Past the end of a design that has one, trials reuse its masks from the start; nobody looks at what they give.
    """
    numbers = range(group.number * group_size, (group.number + 1) * group_size)
    if design.limit is None:
        return [design.trial(number) for number in numbers]
    return [
        design.trial(number) if number < design.limit else replace(design.trial(number % design.limit), number=number)
        for number in numbers
    ]


def installed_versions() -> dict[str, str]:
    """Of this machine's libraries, those whose versions change rounding: what run.json and segments record."""
    found = {"python": platform.python_version()}
    for package in ("memfluence", "numpy", "scikit-learn", "torch"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
