"""`processes`: groups shared out among worker processes of this machine.

Each worker has a pipe of its own and the parent hands out work; nothing is shared under a lock, so a worker that is
killed at any moment cannot block the others. Workers write to the store themselves. A worker whose parent is gone
notices at its next word to it, stores what it has and ends.
"""

import multiprocessing
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from memfluence.engines._signals import STOPPING, blocked, time_is_over, uninterrupted
from memfluence.engines.environment import (
    one_thread,
    safe_children,
    safe_joblib,
    scripts_as_ever,
    single_threaded_children,
)
from memfluence.engines.events import Emit, Event, TrialFailed, WorkerLost
from memfluence.engines.handouts import Ledger, gone_on, next_handout
from memfluence.engines.work import Group, GroupRunner, Work, groups_of
from memfluence.errors import EngineError, LearnerError, MemfluenceError
from memfluence.records import Failure
from memfluence.store import TrialStore

_SECONDS_PER_HANDOUT = 0.5  # quick trials are handed out several groups at a time


class _Stop(BaseException):
    """Raised in a worker by SIGTERM: store what is complete and end. Not an Exception, so that no learner eats it."""


@dataclass
class _Worker(Ledger):
    number: int
    process: Any
    pipe: Connection
    given_at: float = 0.0
    payload: bytes | None = None  # the work itself, until it was sent

    def answer(self, groups: Callable[[], list[Group]]) -> None:
        """What a worker gets that asks: first the work itself, then groups of it.

        Not as an argument of the process: if it died while starting, we would wait for ever to write a large one.
        """
        if self.payload is None:
            self.hand(groups())
            return
        with suppress(OSError):
            self.pipe.send(self.payload)
        self.payload = None

    def hand(self, groups: list[Group]) -> None:
        """Give it work; an empty list sends it home. A worker that is gone shows as the end of its pipe later."""
        self.give(groups)
        self.given_at = time.monotonic()
        with suppress(OSError):
            self.pipe.send(groups)


def run_processes(
    work: Work, groups: Sequence[Group], emit: Emit, *, workers: int, deadline: float | None = None
) -> None:
    """Run all groups on up to `workers` processes.

    A worker that dies fails the trials it was at, which are not tried again unless asked (they may be what killed it);
    one whose checkpoint is further on than when it last lost a worker goes on from there. Whatever else the worker had
    not stored goes to the others, or to a new team if the others have gone home.
    """
    waiting = deque(groups)
    lost_at: dict[int, float] = {}  # trial -> how far its checkpoint was when it lost a worker
    while waiting:
        before = sum(len(group.wanted) for group in waiting), dict(lost_at)
        lost = _run_team(work, waiting, emit, workers, lost_at, deadline)
        left = sum(len(group.wanted) for group in waiting), lost_at
        if left == before or any(not worker.given_at for worker, _ in lost):  # no use in trying once more
            reasons = "; ".join(dict.fromkeys(reason for _, reason in lost))
            raise EngineError(f"{reasons}. What was complete is stored; run the same command to go on.")


def _run_team(
    work: Work, waiting: deque[Group], emit: Emit, workers: int, lost_at: dict[int, float], deadline: float | None
) -> list[tuple[_Worker, str]]:
    """Hand out groups until none are left or no worker is; gives the workers that died, and how."""
    team = _start(work, min(workers, len(waiting)))
    lost: list[tuple[_Worker, str]] = []
    pace = 0.0  # seconds per group, as last seen
    try:
        while team:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise time_is_over()
            for ready in wait([worker.pipe for worker in team], left):
                worker = next(worker for worker in team if worker.pipe is ready)
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    team.remove(worker)
                    if reason := _why_lost(worker):
                        lost.append((worker, reason))
                        emit(WorkerLost(worker.number, reason, len(worker.done)))
                        waiting.extendleft(_bury(worker, reason, work, emit, lost_at))
                    continue
                if isinstance(message, MemfluenceError):
                    raise message
                if message is not None:
                    worker.hear(message)
                    emit(message)
                    continue
                if worker.groups:
                    pace = (time.monotonic() - worker.given_at) / len(worker.groups)
                worker.answer(partial(next_handout, waiting, pace, len(team), _SECONDS_PER_HANDOUT))
    except BaseException:
        with uninterrupted():
            _stop(team, emit)
        raise
    return lost


def _bury(worker: _Worker, reason: str, work: Work, emit: Emit, lost_at: dict[int, float]) -> list[Group]:
    """Fail the trials that a dead worker was at, and give back all else that it had not stored.

    Given back is also a trial whose checkpoint is further on than in `lost_at`.
    """
    begun = [group for group in worker.groups if not set(group.wanted) <= worker.done]
    guilty = set(begun[0].wanted) & worker.unstored if begun else set()
    guilty -= gone_on(work, guilty, lost_at)
    store = TrialStore.open(work.run, work.identity)
    for trial in sorted(guilty):
        store.write_failure(Failure(trial, reason))
        emit(TrialFailed(trial, reason))
    return groups_of(worker.unstored - guilty, work.group_size)


def _start(work: Work, count: int) -> list[_Worker]:
    try:
        payload = pickle.dumps(work)
    except Exception as error:
        raise LearnerError(
            f"The learner or the data cannot be sent to worker processes ({error});"
            " define the learner in a file or module (file.py:name), or use one worker."
        ) from error
    context = multiprocessing.get_context("spawn")  # fork copies locks that other threads hold
    team = []
    with single_threaded_children(), safe_children():
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, number), name=f"memfluence-{number}")
            with blocked():  # a Ctrl-C while it imports would show its traceback
                process.start()
            theirs.close()  # so that the worker's end is the only one, and its death is an end of file here
            team.append(_Worker(number, process, ours, payload=payload))
    return team


def _why_lost(worker: _Worker) -> str | None:
    """None if the worker was sent home and ended well."""
    worker.process.join()
    code = worker.process.exitcode
    if code == 0 and not worker.groups:
        return None
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    why = " (out of memory is the usual reason)" if code == -signal.SIGKILL else ""
    if not worker.given_at:
        why = ' while starting (a script that asks for workers must do so under if __name__ == "__main__":)'
    return f"worker process {worker.number} {how}{why}"


def _stop(team: list[_Worker], emit: Emit) -> None:
    """End all workers; each stores its completed trials first."""
    for worker in team:
        worker.process.terminate()
    for worker in team:
        try:
            while True:  # drain, so that no worker blocks on a full pipe while it stores
                message = worker.pipe.recv()
                if message is None:
                    worker.hand([])  # it asks for work: its learner swallowed the signal
                elif not isinstance(message, MemfluenceError):
                    emit(message)
        except (EOFError, OSError):
            worker.process.join()


def _serve(pipe: Connection, number: int) -> None:
    """The life of a worker."""
    scripts_as_ever()
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # they reach the parent, which then tells us
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Stop

    def emit(event: Event) -> None:
        try:
            pipe.send(event)
        except OSError:
            raise _Stop from None  # the parent is gone

    try:
        signal.signal(signal.SIGTERM, stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        pipe.send(None)
        payload = pipe.recv()
        if not payload:
            return  # sent home before it began
        work = pickle.loads(payload)
        safe_joblib()
        work = replace(work, device=_own_device(work.device, number))
        with one_thread(), GroupRunner(work, emit) as runner:
            while True:
                pipe.send(None)
                groups = pipe.recv()
                if not groups:
                    break
                for group in groups:
                    runner.run(group)
                    if stopping:  # and the learner swallowed it
                        raise _Stop
    except (_Stop, EOFError, BrokenPipeError, ConnectionResetError):
        return
    except MemfluenceError as error:
        pipe.send(error)


def _own_device(device: str, number: int) -> str:
    """Worker k takes GPU k, round and round."""
    if device == "cpu" or not Path("/dev/nvidiactl").exists():
        return device
    import torch

    return f"cuda:{number % torch.cuda.device_count()}" if torch.cuda.is_available() else device
