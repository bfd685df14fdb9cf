"""The only place that prints while work is done: how far it is, pace, time left, running mean of the test outcome."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from memfluence.engines.events import Event, Note, StoredElsewhere, TrialDone, TrialFailed, WorkerLost
from memfluence.errors import one_line
from memfluence.records import PartWay

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

_SECONDS_BETWEEN_LINES = 10.0  # where there is no terminal to redraw
_SECONDS_BETWEEN_DISPLAYS = 0.25  # each is a message to a notebook's page
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
    """A bar on a terminal, a line that is written anew in a notebook, a line every ten seconds elsewhere, on stderr.

    `words` puts notes in other words.
    """

    def __init__(self, stream: TextIO | None = None, words: Callable[[str], str] = str) -> None:
        self._console, self._words = _console(stream), words
        self.start(total=0, done=0)

    def start(self, *, total: int, done: int) -> None:
        self._total, self._before, self._done, self._failed = total, done, done, 0
        self._accuracies, self._sum_of_accuracies, self._has_scores = 0, 0.0, False
        self._parts: dict[int, float] = {}  # how far each trial is that is part-way
        self._head_starts: dict[int, float] = {}  # how far it was when it went on from a checkpoint
        self._meter = _Meter(self._console, total, done)

    def note(self, message: str) -> None:
        self._meter.note(one_line(self._words(message)))

    def event(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            self._done += 1
            self._parts.pop(event.trial, None)
            self._accuracies += 1
            self._sum_of_accuracies += event.test_accuracy
            self._has_scores = event.has_scores
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
        text = f"{self._done}/{self._total} trials, {self._partly()}{self._pace()}{self._tail()}"
        self._meter.update(self._finished(), text)

    def stop(self) -> None:
        took = duration(time.monotonic() - self._meter.started)
        self._meter.stop(f"{self._done}/{self._total} trials in {took}{self._tail()}")

    def _tail(self) -> str:
        mean = self._sum_of_accuracies / max(1, self._accuracies)
        said = f", mean test score {mean:.4g}" if self._has_scores else f", test accuracy {mean:.2%}"
        return said * bool(self._accuracies) + (f", {self._failed} failed" if self._failed else "")

    def _partly(self) -> str:
        """The trials that are long enough to have said how far they are."""
        shown = [f"trial {trial}: {self._parts[trial]:.0%}" for trial in sorted(self._parts)]
        more = [f"{len(shown) - _MOST_PARTS_SHOWN} more"] if len(shown) > _MOST_PARTS_SHOWN else []
        return "".join(f"{part}, " for part in shown[:_MOST_PARTS_SHOWN] + more)

    def _finished(self) -> float:
        return self._done + self._failed + sum(self._parts.values())

    def _pace(self) -> str:
        """By what was trained since the start, parts of trials too: outcomes come in bursts of a group."""
        elapsed = time.monotonic() - self._meter.started
        finished = self._finished()
        rate = (finished - self._before - sum(self._head_starts.values())) / elapsed if elapsed > 0 else 0.0
        if rate <= 0:
            return "unknown time left"
        pace = f"{rate:.3g} trials/s" if rate >= 0.1 else f"{duration(1 / rate)} a trial"
        return f"{pace}, {duration((self._total - finished) / rate)} left"


@contextmanager
def share_of(what: str, stream: TextIO | None = None) -> Iterator[Callable[[float], None]]:
    """Show how far one long piece of work is, and the time left; gives a function that is told the share."""
    meter = _Meter(_console(stream), 1.0, 0.0)

    def update(share: float) -> None:
        elapsed = time.monotonic() - meter.started
        left = f", {duration(elapsed * (1 - share) / share)} left" if 0 < share < 1 else ""
        meter.update(share, f"{what} {share:.0%}{left}")

    try:
        yield update
    finally:
        meter.stop()


def _console(stream: TextIO | None) -> "Console":
    from rich.console import Console

    return Console(file=stream or sys.stderr, highlight=False)


class _Meter:
    """A bar with a text on a terminal and in a notebook, the text every ten seconds elsewhere."""

    def __init__(self, console: "Console", total: float, done: float) -> None:
        self._console = console
        self.started = self._last_line = time.monotonic()
        self._bar: Bar | None = None
        self._cell = _Cell(total) if console.is_jupyter and total > done else None
        if console.is_terminal and total > done:
            from rich import progress

            text = progress.TextColumn("{task.description}", markup=False)
            self._bar = progress.Progress(progress.BarColumn(), text, console=console)
            self._task = self._bar.add_task("starting", total=total, completed=int(done))
            self._bar.start()

    def note(self, text: str) -> None:
        if self._cell is not None:
            self._cell.note(text)
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    def update(self, done: float, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=text)
        elif self._cell is not None:
            self._cell.update(done, text)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._console.print(text, markup=False, soft_wrap=True)

    def stop(self, result: str = "") -> None:
        """Leave the result where the bar was; elsewhere nothing."""
        if self._bar is not None:
            if result:
                self._bar.update(self._task, description=result)
            self._bar.stop()
        if self._cell is not None:
            self._cell.finish(result)
        self._bar = self._cell = None


class _Cell:
    """A line below a notebook's cell: a bar and a text, written anew; notes stay below it.

    It is one output of the cell, as IPython displays it: what is written to stderr would be red and one line more each
    time, and the bars of rich and tqdm need ipywidgets.
    """

    def __init__(self, total: float) -> None:
        from IPython.display import display

        self._total, self._done, self._text = total, 0.0, "starting"
        self._notes: list[str] = []
        self._shown = time.monotonic()
        self._handle: Any = display(self._content(), raw=True, display_id=True)

    def note(self, text: str) -> None:
        self._notes.append(text)
        self._show()

    def update(self, done: float, text: str) -> None:
        self._done, self._text = done, text
        if time.monotonic() - self._shown >= _SECONDS_BETWEEN_DISPLAYS:
            self._show()

    def finish(self, result: str) -> None:
        self._text, self._total = result or self._text, 0.0
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        self._handle.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        bar = f'<progress value="{self._done:.4g}" max="{self._total:g}"></progress> ' if self._total else ""
        notes = "".join(f'<div style="margin-top:.3em">{escape(note)}</div>' for note in self._notes)
        line = f'<div style="font-variant-numeric:tabular-nums">{bar}{escape(self._text)}</div>'
        return {"text/html": line + notes, "text/plain": "\n".join([self._text, *self._notes])}


def duration(seconds: float) -> str:
    """Seconds in words: 340 ms, 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
