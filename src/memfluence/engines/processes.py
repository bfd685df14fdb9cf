"""`processes`: groups shared out among worker processes of this machine.

Each worker has a pipe of its own and the parent hands out work; nothing is shared under a lock, so a worker that is
killed at any moment cannot block the others. Workers write to the store themselves. Whatever the code that they train
does to its process (a crash, an exit, a hang, files closed, threads and processes left behind), the others go on.
Workers end with their parent.
"""

import ctypes
import importlib.util
import multiprocessing
import os
import pickle
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from memfluence.engines.environment import (
    STOPPING,
    blocked,
    one_thread,
    safe_children,
    safe_joblib,
    scripts_as_ever,
    single_threaded_children,
    time_is_over,
    uninterrupted,
)
from memfluence.engines.events import Emit, Event, Note, TrialDone, TrialFailed, WorkerLost
from memfluence.engines.handouts import Ledger, Queue, gone_on, next_handout
from memfluence.engines.progress import duration
from memfluence.engines.work import Group, GroupRunner, Work, groups_of
from memfluence.errors import EngineError, LearnerError, MemfluenceError
from memfluence.records import Failure
from memfluence.store import TrialStore

_SECONDS_PER_HANDOUT = 0.5  # quick trials are handed out several groups at a time
_TICK = 0.5  # seconds between looks at the clock and at workers that say nothing
_GRACE, _LONG_GRACE = 10.0, 60.0  # seconds to stop in; the long one is for learners that write checkpoints
_HURRY = 3.0  # seconds that are left after a second signal
_SECONDS_TO_LEAVE = 3.0  # for threads that a learner has left behind
_FAR_LONGER, _LEAST_SECONDS, _LEAST_TRIALS = 10, 30.0, 5  # times the median; from so many seconds and trials on
_MOST_LOST_FOR_NOTHING = 3
_PR_SET_PDEATHSIG = 1
_STORING = "storing"  # what a worker says that was stopped, and is out of the learner's code


class _Stop(KeyboardInterrupt):
    """Raised in a worker by SIGTERM: store what is complete and end."""


@dataclass
class _Worker(Ledger):
    number: int
    process: Any
    pipe: Connection
    payload: bytes | None  # the work itself, until it was sent
    given_at: float = 0.0
    is_storing: bool = False

    def send(self, groups: list[Group]) -> None:
        """Give it work; an empty list sends it home. A worker that is gone shows as the end of its pipe later."""
        self.give(groups)
        self.given_at = time.monotonic()
        with suppress(OSError):
            self.pipe.send(groups)

    def send_payload(self) -> None:
        """Not as an argument of the process: if it died while starting, we would wait for ever to write a large one."""
        with suppress(OSError):
            self.pipe.send(self.payload)
        self.payload = None


def run_processes(
    work: Work,
    queue: Queue,
    emit: Emit,
    *,
    workers: int,
    deadline: float | None = None,
    trial_timeout: float | None = None,
) -> None:
    """Run all groups on up to `workers` processes.

    A worker that dies fails the trials it was at, which are not tried again unless asked (they may be what killed it);
    one whose checkpoint is further on than when it last lost a worker goes on from there. Whatever else the worker had
    not stored is handed out again, and another worker takes its place. A trial that takes longer than `trial_timeout`
    seconds is failed, with its worker.
    """
    team = _Team(work, queue, emit, trial_timeout)
    try:
        while queue.wait(deadline):
            team.start(range(min(workers, len(queue))))
            while team.workers:
                if deadline is not None and time.monotonic() >= deadline:
                    raise time_is_over()
                team.listen(_TICK if deadline is None else min(_TICK, max(0.0, deadline - time.monotonic())))
                team.look_at_the_clock()
            if team.lost_for_nothing and len(queue):  # no use in trying once more
                reasons = "; ".join(dict.fromkeys(team.lost_for_nothing))
                raise EngineError(f"{reasons}. What was complete is stored; run the same command to go on.")
    except BaseException:
        with uninterrupted() as signals:
            team.end(team.workers, _LONG_GRACE if work.has_checkpoints else _GRACE, signals)
        raise


class _Team:
    """The workers that there are, and what they have been like."""

    def __init__(self, work: Work, queue: Queue, emit: Emit, trial_timeout: float | None) -> None:
        self._work, self._queue, self._emit, self._trial_timeout = work, queue, emit, trial_timeout
        self.workers: list[_Worker] = []
        self.lost_for_nothing: list[str] = []  # why workers died that had neither failed nor stored anything
        self._lost_at: dict[int, float] = {}  # trial -> how far its checkpoint was when it lost a worker
        self._pace = 0.0  # seconds per group, as last seen
        self._seconds: deque[float] = deque(maxlen=1000)  # that trials have taken
        self._told: set[int] = set()  # trials that take far longer
        self._size, self._next_look = work.group_size, 0.0

    def start(self, numbers: Collection[int]) -> None:
        """Workers with these numbers."""
        try:
            payload = _pickled(self._work)
        except Exception as error:
            raise LearnerError(
                f"The learner or the data cannot be sent to worker processes ({error});"
                " define the learner in a file or module (file.py:name), or use one worker."
            ) from error
        context = multiprocessing.get_context("spawn")  # fork copies locks that other threads hold
        with single_threaded_children(), safe_children(), _without_its_file():
            resource_tracker.ensure_running()  # here, because it lets signals through when it starts
            for number in numbers:
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, number), name=f"memfluence-{number}")
                with blocked():  # a Ctrl-C while it imports would show its traceback
                    process.start()
                theirs.close()  # so that the worker's end is the only one, and its death is an end of file here
                self.workers.append(_Worker(number, process, ours, payload))

    def listen(self, seconds: float) -> None:
        """Hear what workers say, and answer them."""
        for pipe in wait([worker.pipe for worker in self.workers], seconds):
            worker = next(worker for worker in self.workers if worker.pipe is pipe)
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._lose(worker)
                continue
            if isinstance(message, MemfluenceError):
                raise message
            if message is not None:
                self._hear(worker, message)
            elif worker.payload is not None:
                worker.send_payload()
            else:
                if worker.groups:
                    self._pace = (time.monotonic() - worker.given_at) / len(worker.groups)
                worker.send(next_handout(self._queue, self._pace, len(self.workers), _SECONDS_PER_HANDOUT))

    def _hear(self, worker: _Worker, event: Event) -> None:
        worker.hear(event)
        self._emit(event)
        if isinstance(event, TrialDone):
            self._seconds.append(event.seconds)

    def look_at_the_clock(self) -> None:
        """End workers whose trial takes too long; notice what says nothing, and tell of it."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _TICK
        for worker in tuple(self.workers):
            if worker.process.exitcode is not None and not worker.pipe.poll():
                self._lose(worker)  # and a process that it has left holds its end of the pipe
            elif worker.left and self._trial_timeout and now - worker.begun > self._trial_timeout * self._size:
                late = set(worker.left)
                self.end([worker], _HURRY)
                several = f" for each of the {self._size} of its group" if self._size > 1 else ""
                reason = f"it took longer than the {self._trial_timeout:g} s that a trial may take{several}"
                self._bury(worker, reason, late & worker.unstored - worker.done)
            elif worker.left:
                self._tell_of_a_long_one(min(worker.left), (now - worker.begun) / self._size)

    def _tell_of_a_long_one(self, trial: int, seconds: float) -> None:
        if seconds < _LEAST_SECONDS or len(self._seconds) < _LEAST_TRIALS or trial in self._told:
            return
        typical = statistics.median(self._seconds)
        if seconds >= _FAR_LONGER * typical:
            self._told.add(trial)
            long, usual = duration(seconds), duration(typical)
            self._emit(
                Note(f"trial {trial} has been in training for {long}; half of the others took less than {usual}")
            )

    def _lose(self, worker: _Worker) -> None:
        """A worker has closed its pipe, or is gone."""
        worker.process.join(_SECONDS_TO_LEAVE)
        code = worker.process.exitcode
        if code is None:
            self.end([worker], _HURRY)
        sent_home = code is None and worker.given_at and not worker.unstored
        if not worker.groups and (code == 0 or sent_home):  # it ended well, or would have on a less busy machine
            self.workers.remove(worker)
            return
        guilty = worker.left & worker.unstored
        self._bury(worker, _why_lost(worker, code), guilty - gone_on(self._work, guilty, self._lost_at))

    def _bury(self, worker: _Worker, reason: str, guilty: set[int]) -> None:
        """Fail the trials that a worker has ended with, hand out again all else that it had not stored, replace it."""
        self.workers.remove(worker)
        self._emit(WorkerLost(worker.number, reason, len(worker.done)))
        store = TrialStore.open(self._work.run, self._work.identity)
        for trial in sorted(guilty):
            store.write_failure(Failure(trial, reason))
            self._emit(TrialFailed(trial, reason))
        self._queue.give_back(reversed(groups_of(worker.unstored - guilty, self._size)))
        if not (guilty or worker.left or worker.has_settled):
            self.lost_for_nothing.append(reason)
        if self._queue and worker.given_at and len(self.lost_for_nothing) < _MOST_LOST_FOR_NOTHING:
            self.start([worker.number])

    def end(self, workers: Sequence[_Worker], seconds: float, signals: Callable[[], int] = lambda: 0) -> None:
        """Stop workers; each stores its completed trials first, and is killed if it has not begun with that in time.

        It has so many seconds; fewer when `signals`, the number of those that came meanwhile, is no longer 0.
        """
        for worker in workers:
            worker.process.terminate()
        left, until, is_hurried = list(workers), time.monotonic() + seconds, False
        while left:
            if signals() and not is_hurried:
                is_hurried, until = True, min(until, time.monotonic() + _HURRY)
            for worker in left if time.monotonic() >= until else ():
                if not worker.is_storing:
                    worker.process.kill()
            for pipe in wait([worker.pipe for worker in left], _TICK / 5):  # drained, so that none blocks on a full one
                worker = next(worker for worker in left if worker.pipe is pipe)
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    left.remove(worker)
                    continue
                if message == _STORING:
                    worker.is_storing = True
                elif message is None:
                    worker.send([])  # it asks for work: its learner swallowed the signal
                elif not isinstance(message, MemfluenceError):
                    self._hear(worker, message)
            left = [worker for worker in left if worker.process.exitcode is None or worker.pipe.poll()]
        for worker in workers:
            worker.process.join(_SECONDS_TO_LEAVE)
            worker.process.kill()
            worker.process.join()


def _is_typed_in() -> bool:
    """Whether the program is a notebook, a prompt or standard input, so that workers have no file to import it from."""
    return not Path(getattr(sys.modules["__main__"], "__file__", "")).is_file()


def _pickled(work: Work) -> bytes:
    """What a notebook or a prompt has defined goes along as code."""
    if _is_typed_in():
        import cloudpickle

        return bytes(cloudpickle.dumps(work))
    return pickle.dumps(work)


@contextmanager
def _without_its_file() -> Iterator[None]:
    """Within, a program that was typed in has no file; standard input has "<stdin>", which workers would open."""
    program = vars(sys.modules["__main__"])
    name = program.pop("__file__", None) if _is_typed_in() else None
    try:
        yield
    finally:
        if name is not None:
            program["__file__"] = name


def _why_lost(worker: _Worker, code: int | None) -> str:
    if code is None:
        how = "closed its connection, as a learner does that closes files that are not its own"
    elif code < 0:
        how = f"was killed by signal {-code}"
    else:
        how = f"ended with code {code} in the middle of its work"
    why = " (out of memory is the usual reason)" if code == -signal.SIGKILL else ""
    if not worker.given_at and not _is_typed_in():
        why = ' while starting (a script that asks for workers must do so under if __name__ == "__main__":)'
    return f"worker process {worker.number} {how}{why}"


def _serve(pipe: Connection, number: int) -> None:
    """The life of a worker."""
    _end_with_the_parent()
    try:
        with suppress(_Stop):  # also while it tells its parent of an error
            _train(pipe, number)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is on its way
        with suppress(OSError):
            pipe.close()
        for child in multiprocessing.active_children():  # joblib's would be waited for until they have been idle long
            child.terminate()
        leave = threading.Timer(_SECONDS_TO_LEAVE, os._exit, (0,))  # Python waits for threads that a learner has left
        leave.daemon = True
        leave.start()


def _end_with_the_parent() -> None:
    """At once, in the middle of anything: another command may be at the same trials by then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # even in code that lets no thread run
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _train(pipe: Connection, number: int) -> None:
    scripts_as_ever()
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # they reach the parent, which then tells us
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Stop

    def tell(message: Event | MemfluenceError | str | None) -> None:
        try:
            with blocked():  # half a message would make nonsense of the next one
                pipe.send(message)
        except OSError:  # a learner has closed it
            raise _Stop from None

    def told() -> Any:
        tell(None)
        try:
            return pipe.recv()
        except (EOFError, OSError):
            raise _Stop from None

    try:
        signal.signal(signal.SIGTERM, stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        payload = told()
        if not payload:
            return  # sent home before it began
        work = pickle.loads(payload)
        safe_joblib()
        work = replace(work, device=_own_device(work.device, number))
        with one_thread(), GroupRunner(work, tell) as runner:
            try:
                while groups := told():
                    for group in groups:
                        runner.run(group)
                        if stopping:  # and the learner swallowed it
                            raise _Stop
            except _Stop:
                tell(_STORING)
                raise
    except MemfluenceError as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by which the parent answers
        tell(error)


def _own_device(device: str, number: int) -> str:
    """Worker k takes GPU k, round and round."""
    if device == "cpu" or not Path("/dev/nvidiactl").exists() or importlib.util.find_spec("torch") is None:
        return device
    import torch

    return f"cuda:{number % torch.cuda.device_count()}" if torch.cuda.is_available() else device
