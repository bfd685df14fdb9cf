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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from memfluence.engines._threads import one_thread, single_threaded_children
from memfluence.engines.events import Emit, Event, WorkerLost
from memfluence.engines.work import Group, GroupRunner, Work
from memfluence.errors import EngineError, LearnerError, MemfluenceError

__all__ = ["run_processes"]

_SECONDS_PER_HANDOUT = 0.5  # quick trials are handed out several groups at a time
_MOST_GROUPS_PER_HANDOUT = 64


class _Stop(BaseException):
    """Raised in a worker by SIGTERM: store what is complete and end. Not an Exception, so that no learner eats it."""


@dataclass
class _Worker:
    number: int
    process: Any
    pipe: Connection
    groups: list[Group] = field(default_factory=list)  # handed out and not yet answered for
    given_at: float = 0.0


def run_processes(work: Work, groups: Sequence[Group], emit: Emit, *, workers: int) -> None:
    """Run all groups on up to `workers` processes. A worker that dies costs its own groups, not the others'."""
    waiting = deque(groups)
    team = _start(work, min(workers, len(groups)))
    lost: list[str] = []
    pace = 0.0  # seconds per group, as last seen
    try:
        while team:
            for ready in wait([worker.pipe for worker in team]):
                worker = next(worker for worker in team if worker.pipe is ready)
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    team.remove(worker)
                    if reason := _why_lost(worker):
                        lost.append(reason)
                        emit(WorkerLost(worker.number, reason))
                    continue
                if isinstance(message, MemfluenceError):
                    raise message
                if message is not None:
                    emit(message)
                    continue
                if worker.groups:
                    pace = (time.monotonic() - worker.given_at) / len(worker.groups)
                worker.groups = _next_handout(waiting, pace, len(team))
                worker.given_at = time.monotonic()
                worker.pipe.send(worker.groups)  # an empty list sends the worker home
    except BaseException:
        _stop(team, emit)
        raise
    if lost:
        raise EngineError(f"{'; '.join(lost)}. What was complete is stored; run the same command to go on.")


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
    with single_threaded_children():
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, payload, number), name=f"memfluence-{number}")
            process.start()
            theirs.close()  # so that the worker's end is the only one, and its death is an end of file here
            team.append(_Worker(number, process, ours))
    return team


def _next_handout(waiting: deque[Group], pace: float, team: int) -> list[Group]:
    """As many groups as take about half a second, fewer towards the end so that workers finish together."""
    wanted = int(_SECONDS_PER_HANDOUT / pace) if pace > 0 else 1
    count = max(1, min(wanted, _MOST_GROUPS_PER_HANDOUT, len(waiting) // (2 * team)))
    return [waiting.popleft() for _ in range(min(count, len(waiting)))]


def _why_lost(worker: _Worker) -> str | None:
    """None if the worker was sent home and ended well."""
    worker.process.join()
    code = worker.process.exitcode
    if code == 0 and not worker.groups:
        return None
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    why = " (out of memory is the usual reason)" if code == -signal.SIGKILL else ""
    trials = [trial for group in worker.groups for trial in group.wanted]
    during = f" during trials {trials[0]} to {trials[-1]}" if trials else " while starting"
    return f"worker {worker.number} {how}{why}{during}"


def _stop(team: list[_Worker], emit: Emit) -> None:
    """End all workers; each stores its completed trials first."""
    for worker in team:
        worker.process.terminate()
    for worker in team:
        try:
            while True:  # drain, so that no worker blocks on a full pipe while it stores
                message = worker.pipe.recv()
                if message is not None and not isinstance(message, MemfluenceError):
                    emit(message)
        except (EOFError, OSError):
            worker.process.join()


def _serve(pipe: Connection, payload: bytes, number: int) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which then tells us

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Stop

    def emit(event: Event) -> None:
        try:
            pipe.send(event)
        except OSError:
            raise _Stop from None  # the parent is gone

    try:
        signal.signal(signal.SIGTERM, stop)
        work = pickle.loads(payload)
        work = replace(work, device=_own_device(work.device, number))
        with one_thread(), GroupRunner(work, emit) as runner:
            while True:
                pipe.send(None)
                groups = pipe.recv()
                if not groups:
                    break
                for group in groups:
                    runner.run(group)
    except (_Stop, EOFError, BrokenPipeError, ConnectionResetError):
        return
    except MemfluenceError as error:
        pipe.send(error)


def _own_device(device: str, number: int) -> str:
    """Worker k takes GPU k, round and round."""
    if device != "cuda":
        return device
    import torch

    return f"cuda:{number % max(1, torch.cuda.device_count())}"
