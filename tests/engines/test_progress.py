"""What is said while trials run."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sklearn.dummy import DummyClassifier

import memfluence as mf
from memfluence.engines import Note, PartWay, TrialDone, TrialFailed, processes
from memfluence.engines import progress as progress_module
from memfluence.engines.events import WorkerLost
from memfluence.engines.progress import Progress, Silent, share_of


class Told:
    """A progress without a terminal and with a clock of its own; each event gives the line that it makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: int, done: int = 0) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress_module.time, "monotonic", lambda: self.now)
        self.stream = io.StringIO()
        self.progress = Progress(self.stream)
        self.progress.start(total=total, done=done)

    def after(self, seconds: float, event: Any) -> list[str]:
        self.now += seconds
        self.stream.seek(0)
        self.stream.truncate()
        self.progress.event(event)
        return self.stream.getvalue().splitlines()


def test_parts_of_trials_count_for_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, total=4)
    assert told.after(5, PartWay(0, 0.05)) == []  # a line every ten seconds
    assert told.after(15, PartWay(0, 0.2)) == ["0/4 trials, trial 0: 20%, 1 min 40 s a trial, 6 min 20 s left"]
    assert told.after(80, TrialDone(0, 0.5, 100)) == [
        "1/4 trials, 1 min 40 s a trial, 5 min 00 s left, test accuracy 50.00%"
    ]
    assert told.after(50, PartWay(1, 0.5)) == [
        "1/4 trials, trial 1: 50%, 1 min 40 s a trial, 4 min 10 s left, test accuracy 50.00%"
    ]


def test_what_a_checkpoint_brought_along_is_not_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, total=2)
    assert told.after(1, PartWay(0, 0.9, 0.9)) == ["trial 0 goes on from 90%"]
    told.now = 0.0
    assert told.after(10, PartWay(0, 0.95, 0.9)) == ["0/2 trials, trial 0: 95%, 3 min 20 s a trial, 3 min 30 s left"]
    told.after(10, TrialDone(0, 1.0, 200))
    assert told.after(100, PartWay(1, 0.5)) == [
        "1/2 trials, trial 1: 50%, 3 min 20 s a trial, 1 min 40 s left, test accuracy 100.00%"
    ]


def test_a_few_of_many_parts_are_shown_and_failed_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, total=100)
    for trial in (4, 2, 3, 1, 0):
        told.after(0, PartWay(trial, 0.1))
    (line,) = told.after(50, PartWay(5, 0.5))
    assert line.startswith("0/100 trials, trial 0: 10%, trial 1: 10%, trial 2: 10%, 3 more, 50 s a trial, ")
    told.after(0, TrialFailed(0, "no luck"))
    (line,) = told.after(10, TrialFailed(1, "no luck"))
    assert line.startswith("0/100 trials, trial 2: 10%, trial 3: 10%, trial 4: 10%, 1 more, ")
    assert line.endswith(", 2 failed")


def test_notes_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Told(monkeypatch, total=1).after(0, Note("The checkpoint is [not] used.")) == [
        "The checkpoint is [not] used."
    ]


def test_share_of_long_work_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("memfluence.engines.progress.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    with share_of("explorer", stream) as shown:
        for share in (0.1, 0.25, 0.5, 1.0):
            clock[0] += 12.0 if share in (0.25, 1.0) else 1.0
            shown(share)
    assert stream.getvalue() == "explorer 25%, 39 s left\nexplorer 100%\n"
    quick = io.StringIO()
    with share_of("explorer", quick) as shown:
        shown(1.0)
    assert quick.getvalue() == ""


class Page:
    """Stands for IPython: what the cell shows now, and all that it has shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.outputs = 0

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> "Page":
        assert raw
        assert display_id
        self.outputs += 1
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content)


def test_a_notebook_has_one_line_that_ends_as_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=page.display))
    told = Told(monkeypatch, total=2)
    assert told.after(0.2, PartWay(0, 0.5)) == []
    assert [one["text/plain"] for one in page.shown] == ["starting"]  # four times a second are enough
    told.after(0.8, TrialDone(0, 0.5, 1))
    assert '<progress value="1" max="2"></progress> 1/2 trials, 1 trials/s' in page.shown[-1]["text/html"]
    told.after(0, Note("a <note>"))
    assert "a &lt;note&gt;" in page.shown[-1]["text/html"]
    told.after(1, TrialFailed(1, "no luck"))
    told.progress.stop()
    said = "1/2 trials in 2 s, test accuracy 50.00%, 1 failed"
    assert page.shown[-1]["text/plain"].splitlines() == [said, "a <note>", "trial 1 failed: no luck (the others go on)"]
    assert "<progress" not in page.shown[-1]["text/html"]
    told.progress.stop()
    assert page.outputs == 1


class Heard(Silent):
    """What a run tells."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, event: Any) -> None:
        self.events.append(event)


def test_a_worker_that_is_slow_to_leave_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a busy machine a process may take longer to end than it is waited for; all its trials are stored by then."""
    monkeypatch.setattr(processes, "_SECONDS_TO_LEAVE", 0.0)  # of this process alone
    told = Heard()
    mf.run("digits", learner=DummyClassifier(), trials=4, workers=2, out=tmp_path / "run", progress=told)
    assert sum(isinstance(event, TrialDone) for event in told.events) == 4
    assert not [event for event in told.events if isinstance(event, WorkerLost)]
