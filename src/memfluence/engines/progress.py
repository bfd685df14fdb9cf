"""The only place that prints while work is done: how far it is, pace, time left, running mean of test accuracy."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from memfluence.engines.events import Event, Note, StoredElsewhere, TrialDone, TrialFailed, WorkerLost
from memfluence.errors import one_line
from memfluence.records import PartWay

if TYPE_CHECKING:
    from rich.console import Console

_SECONDS_BETWEEN_LINES = 10.0  # where there is no terminal to redraw
_MOST_PARTS_SHOWN = 3


class ProgressListener(Protocol):
    """What a run reports to. `start` comes before its first event; several runs may report to one listener in turn."""

    def start(self, *, total: int, done: int) -> None: ...

    def note(self, message: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Says nothing."""

    def start(self, *, total: int, done: int) -> None: ...

    def note(self, message: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def stop(self) -> None: ...


class Progress:
    """A bar on a terminal, a line every ten seconds elsewhere; always on stderr. `words` puts notes in other words."""

    def __init__(self, stream: TextIO | None = None, words: Callable[[str], str] = str) -> None:
        from rich.console import Console

        self._console, self._words = Console(file=stream or sys.stderr, highlight=False), words
        self._bar: _Bar | None = None
        self._failed = 0
        self._accuracy = _RunningMean()
        self._parts: dict[int, float] = {}  # how far each trial is that is part-way
        self._head_starts: dict[int, float] = {}  # how far it was when it went on from a checkpoint
        self._total = self._before = self._done = 0
        self._started = self._last_line = time.monotonic()

    def start(self, *, total: int, done: int) -> None:
        self._total, self._before, self._done, self._failed = total, done, done, 0
        self._accuracy, self._parts, self._head_starts = _RunningMean(), {}, {}
        self._started = self._last_line = time.monotonic()
        if self._console.is_terminal and total > done:
            self._bar = _Bar(self._console, total, done)

    def note(self, message: str) -> None:
        self._console.print(one_line(self._words(message)), markup=False, soft_wrap=True)

    def event(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            self._done += 1
            self._parts.pop(event.trial, None)
            self._accuracy.add(event.test_accuracy)
        elif isinstance(event, PartWay):
            self._parts[event.trial] = event.fraction
            if event.start and event.trial not in self._head_starts:
                self._head_starts[event.trial] = event.start
                self.note(f"trial {event.trial} goes on from {event.start:.0%}")
        elif isinstance(event, Note):
            self.note(event.message)
        elif isinstance(event, TrialFailed):
            self._failed += 1
            self._parts.pop(event.trial, None)
            if self._failed == 1:
                self.note(f"trial {event.trial} failed: {event.message} (the others go on)")
        elif isinstance(event, StoredElsewhere):
            self._done += len(event.trials)
            self._before += len(event.trials)  # not by our pace
        elif isinstance(event, WorkerLost):
            self._done -= event.unsaved
            self.note(event.reason)
        if self._bar is not None:
            self._bar.update(self._finished(), f"{self._partly()}{self._pace()}{self._tail()}")
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.note(f"{self._done}/{self._total} trials, {self._partly()}{self._pace()}{self._tail()}")

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _tail(self) -> str:
        accuracy = f", test accuracy {self._accuracy.mean:.2%}" if self._accuracy.count else ""
        return accuracy + (f", {self._failed} failed" if self._failed else "")

    def _partly(self) -> str:
        """The trials that are long enough to have said how far they are."""
        shown = [f"trial {trial}: {self._parts[trial]:.0%}" for trial in sorted(self._parts)]
        more = [f"{len(shown) - _MOST_PARTS_SHOWN} more"] if len(shown) > _MOST_PARTS_SHOWN else []
        return "".join(f"{part}, " for part in shown[:_MOST_PARTS_SHOWN] + more)

    def _finished(self) -> float:
        return self._done + self._failed + sum(self._parts.values())

    def _pace(self) -> str:
        """By what was trained since the start, parts of trials too."""
        elapsed = time.monotonic() - self._started
        finished = self._finished()
        rate = (finished - self._before - sum(self._head_starts.values())) / elapsed if elapsed > 0 else 0.0
        if rate <= 0:
            return "unknown time left"
        pace = f"{rate:.3g} trials/s" if rate >= 0.1 else f"{duration(1 / rate)} a trial"
        return f"{pace}, {duration((self._total - finished) / rate)} left"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Bar:
    """Rich's bar with a pace of our own: outcomes come in bursts of a group, which its estimate takes for speed."""

    def __init__(self, console: "Console", total: int, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._progress = RichProgress(
            TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[tail]}"), console=console
        )
        self._task = self._progress.add_task("trials", total=total, completed=done, tail="starting")
        self._progress.start()

    def update(self, done: float, tail: str) -> None:
        self._progress.update(self._task, completed=done, tail=tail)

    def stop(self) -> None:
        self._progress.stop()


class Share:
    """How far one long piece of work is, and the time left: a bar on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._what, self._console = what, Console(file=stream or sys.stderr, highlight=False)
        self._started = self._last_line = time.monotonic()
        columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[tail]}"))
        self._bar = RichProgress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(what, total=1.0, tail="")

    def update(self, share: float) -> None:
        now = time.monotonic()
        left = duration((now - self._started) * (1 - share) / share) if 0 < share < 1 else ""
        tail = f", {left} left" if left else ""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=share, tail=tail.removeprefix(", "))
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(f"{self._what} {share:.0%}{tail}", markup=False, soft_wrap=True)

    def __enter__(self) -> "Share":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()


class _RunningMean:
    def __init__(self) -> None:
        self._sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self._sum += value
        self.count += 1

    @property
    def mean(self) -> float:
        return self._sum / self.count if self.count else float("nan")


def duration(seconds: float) -> str:
    """Seconds in words: 340 ms, 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
