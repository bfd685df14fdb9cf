"""Segments by the clock: a finished trial does not wait in memory for the end of the next one."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memfluence.errors import StoreError
from memfluence.records import Outcome
from memfluence.store import SegmentWriter, TrialStore, writer
from small_world import SmallWorld

PATIENCE = 60  # seconds until a test that waits for ever has failed


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialStore:
    monkeypatch.setattr(writer, "_SHORTEST", 0.01)
    return SmallWorld().create(tmp_path / "run")


def watched(store: TrialStore, monkeypatch: pytest.MonkeyPatch, before: Any = None, after: Any = None) -> None:
    """The store calls `before` and `after` around each segment that it writes."""
    write = store.write

    def watching(outcomes: Sequence[Outcome], **options: Any) -> Any:
        if before:
            before()
        path = write(outcomes, **options)
        if after:
            after()
        return path

    monkeypatch.setattr(store, "write", watching)


def test_a_trial_is_published_while_the_next_one_trains(store: TrialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who listens hears of it on the thread that trains, not in the middle of something else."""
    published = threading.Event()
    watched(store, monkeypatch, after=published.set)
    heard: list[tuple[tuple[int, ...], threading.Thread]] = []
    one = SegmentWriter(store, lambda path, trials: heard.append((trials, threading.current_thread())))
    one.add(SmallWorld().outcome(0))
    assert published.wait(PATIENCE)
    assert store.scan().numbers.tolist() == [0]
    one.close()
    assert heard == [((0,), threading.current_thread())]


def test_what_the_clock_cannot_write_is_an_error_of_the_training_thread(
    store: TrialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, full = threading.Event(), threading.Event()
    full.set()

    def refuse() -> None:
        tried.set()
        if full.is_set():
            raise StoreError("The disk is full.")

    watched(store, monkeypatch, before=refuse)
    one = SegmentWriter(store)
    one.add(SmallWorld().outcome(0))
    assert tried.wait(PATIENCE)
    with pytest.raises(StoreError, match="full"):
        one.close()
    full.clear()
    one.add(SmallWorld().outcome(1))
    one.close()
    assert store.scan().numbers.tolist() == [0, 1]


def test_a_fork_waits_for_the_segment_that_is_being_written(store: TrialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, forking, order = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        begun.set()
        assert forking.wait(PATIENCE)
        forked.join(0.2)  # time in which a fork that does not wait comes first
        order.append("written")

    def fork() -> None:
        assert begun.wait(PATIENCE)
        forking.set()
        if not (child := os.fork()):
            os._exit(0)
        order.append("forked")
        os.waitpid(child, 0)

    forked = threading.Thread(target=fork)
    watched(store, monkeypatch, before=hold)
    one = SegmentWriter(store)
    forked.start()
    one.add(SmallWorld().outcome(0))
    forked.join(PATIENCE)
    assert order == ["written", "forked"]
    one.close()


# The first segment makes PyArrow import pandas. What that did to a fork that waited for it was said on stderr.
FIRST = """
import os, sys
import numpy as np
from memfluence.records import Outcome
from memfluence.store import SegmentWriter, TrialStore

hooks = []
os.register_at_fork = lambda **some: hooks.append(some)
store = TrialStore.open(sys.argv[1])
train, test = np.ones(store.info.n_train, bool), np.ones(store.info.n_test, bool)
writer = SegmentWriter(store)
writer.add(Outcome(99, 0, train, train, test))
writer.close()
assert not any("before" in some for some in hooks), hooks
"""


def test_the_first_segment_registers_nothing_that_a_waiting_fork_would_do_by_half(tmp_path: Path) -> None:
    run = shutil.copytree(Path(__file__).parent / "format-1", tmp_path / "run")
    subprocess.run([sys.executable, "-c", FIRST, str(run)], check=True)
