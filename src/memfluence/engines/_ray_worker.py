"""What runs on the nodes of a Ray cluster: one task is some groups, run as the local engine would.

Ray's worker processes live on from task to task; what they unpack of a run, they keep. They store trials themselves:
what goes back to the driver are small events, most with the end of a task, those of a long task by the mailbox.
"""

import _thread
import os
import pickle
import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from memfluence.engines.environment import scripts_as_ever
from memfluence.engines.events import Event, Note, SegmentWritten
from memfluence.engines.handouts import Queue, run_local
from memfluence.engines.work import Group, Work, installed_versions
from memfluence.errors import EngineError, LearnerError, MemfluenceError, StoreError
from memfluence.store import TrialStore

_SECONDS_BETWEEN_POSTS = 0.5
_SECONDS_BETWEEN_LOOKS = 0.5  # whether the driver wants to stop
_loaded: dict[str, Work] = {}  # what this process works on, by the parcel's key


@dataclass(frozen=True)
class Parcel:
    """A run's work as it is sent: the data by reference to the object store, which has one copy of them on a node."""

    key: str
    dataset: Any  # ObjectRef
    rest: bytes  # the pickled work without the data
    directory: str  # of the driver: paths may be relative to it
    run: str
    identity: Mapping[str, str]  # of the run


@dataclass(frozen=True)
class Report:
    """How a task ended."""

    events: tuple[Event, ...]  # that the mailbox did not get
    seconds: float
    error: MemfluenceError | None = None  # about the work as a whole, which ends the run


class Mailbox:
    """Where tasks post events while they run, and see that they should stop; lives beside the driver."""

    def __init__(self) -> None:
        self._mail: list[tuple[int, tuple[Event, ...]]] = []
        self._begun: set[int] = set()
        self._stopping = False

    def begin(self, task: int) -> bool:
        """Whether a task that Ray has started should run at all."""
        if not self._stopping:
            self._begun.add(task)
        return not self._stopping

    def stop(self) -> set[int]:
        """No task begins from now on, and those that run should end; which have begun."""
        self._stopping = True
        return self._begun

    def is_stopping(self) -> bool:
        return self._stopping

    def post(self, task: int, events: tuple[Event, ...]) -> None:
        self._mail.append((task, events))

    def collect(self) -> list[tuple[int, tuple[Event, ...]]]:
        mail, self._mail = self._mail, []
        return mail


class _Sender:
    """Collects a task's events and posts them now and then; that something is stored is posted at once."""

    def __init__(self, mailbox: Any, task: int) -> None:
        self._mailbox, self._task = mailbox, task
        self._waiting: list[Event] = []
        self._posted: Any = None
        self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        self._waiting.append(event)
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_POSTS or isinstance(event, SegmentWritten):
            self._posted = self._mailbox.post.remote(self._task, tuple(self._waiting))
            self._waiting, self._last = [], now

    def rest(self) -> tuple[Event, ...]:
        """What was not posted, once all that was has arrived: the driver reads the mail before it hears of the end."""
        if self._posted is not None:
            import_module("ray").get(self._posted)
        return tuple(self._waiting)


def run_groups(parcel: Parcel, groups: Sequence[Group], mailbox: Any, task: int) -> Report:
    """The task. If the driver stops, it stores what is complete, as at Ctrl-C."""
    scripts_as_ever()
    ray: Any = import_module("ray")
    try:
        begins = ray.get(mailbox.begin.remote(task))
    except ray.exceptions.RayError:  # the driver has gone, and the mailbox with it
        begins = False
    if not begins:
        return Report((), 0.0)
    sender, started = _Sender(mailbox, task), time.monotonic()
    error = None
    try:
        with _interrupted_by(mailbox):
            work = _unpacked(parcel, sender)
            run_local(work, Queue(work, groups, sender), sender)
    except KeyboardInterrupt:
        pass
    except MemfluenceError as found:
        error = found
    return Report(sender.rest(), time.monotonic() - started, error)


@contextmanager
def _interrupted_by(mailbox: Any) -> Iterator[None]:
    """Interrupt the block, once, when the driver wants to stop.

    That is what `ray.cancel` does to a running task; but if the task ends at that moment, it aborts the driver
    (seen with Ray 2.60).
    """
    ray: Any = import_module("ray")
    over, at_a_time = threading.Event(), threading.Lock()

    def watch() -> None:
        while not over.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                stops = ray.get(mailbox.is_stopping.remote())
            except ray.exceptions.RayError:  # the driver has gone
                stops = True
            if stops:
                with at_a_time:
                    if not over.is_set():
                        _thread.interrupt_main()
                return

    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        raise KeyboardInterrupt

    # By SIGTERM Ray ends a worker whose driver is gone; its SystemExit would look like one of the learner's.
    of_ray = signal.signal(signal.SIGTERM, end)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with at_a_time:  # so that nobody is interrupted who comes after
            over.set()
        signal.signal(signal.SIGTERM, of_ray)
        if ended and callable(of_ray):
            of_ray(signal.SIGTERM, None)


def _unpacked(parcel: Parcel, sender: _Sender) -> Work:
    if parcel.key not in _loaded:
        if Path(parcel.directory).is_dir():
            os.chdir(parcel.directory)
        _check_run(parcel, sender)
        try:
            rest: Work = pickle.loads(parcel.rest)  # from our own driver, over the cluster's own channels
        except MemfluenceError:
            raise
        except Exception as error:
            raise LearnerError(
                f"The learner cannot be loaded on the node {platform.node()} ({type(error).__name__}: {error});"
                " what it needs must be installed on all nodes, and its file lie where all nodes see it."
            ) from error
        _loaded.clear()  # one run at a time: data are large
        _loaded[parcel.key] = replace(rest, dataset=import_module("ray").get(parcel.dataset))
    return _loaded[parcel.key]


def _check_run(parcel: Parcel, sender: _Sender) -> None:
    """Whether this node sees the run that the driver sees, and would make the same bits."""
    here = platform.node()
    try:
        info = TrialStore.open(parcel.run).info
    except (MemfluenceError, OSError) as error:
        missing = not isinstance(error, StoreError)
        raise EngineError(
            f"The node {here} does not see the run in {parcel.run}; `out` must be on storage that all nodes share."
            if missing
            else f"The node {here} cannot read the run: {error}"
        ) from error
    if info.identity != dict(parcel.identity):
        raise EngineError(
            f"The node {here} sees another run in {parcel.run} than the driver; `out` must be on storage that all nodes"
            " share."
        )
    versions = installed_versions()
    shared = sorted(set(versions) & set(info.versions))
    if changed := [f"{name} {versions[name]}" for name in shared if versions[name] != info.versions[name]]:
        sender(Note(f"The node {here} has {', '.join(changed)}, unlike the run; its trials may differ in rounding."))
