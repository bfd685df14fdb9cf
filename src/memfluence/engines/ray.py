"""`ray`: groups as tasks on a Ray cluster.

The driver hands out a bounded number of tasks and hears events; workers store trials in the run's directory, which all
nodes must see. A task that is lost with its node or its worker runs again, elsewhere; a driver that is lost takes its
tasks with it, and the next one goes on from what is stored. Nodes may join and leave at any time.
"""

import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from memfluence.datasets import Dataset
from memfluence.engines._ray_cluster import connected, gpus_and_device, no_room, places, told_on_stderr
from memfluence.engines._ray_worker import Mailbox, Parcel, Report, run_groups
from memfluence.engines.environment import SAFE_PATH, THREAD_VARIABLES, time_is_over, uninterrupted
from memfluence.engines.events import Emit, Event, Note, TrialFailed, WorkerLost
from memfluence.engines.handouts import Ledger, Queue, gone_on, next_handout
from memfluence.engines.work import Group, Work, groups_of
from memfluence.errors import EngineError, InputError, LearnerError
from memfluence.records import Failure
from memfluence.store import TrialStore

_TICK = 0.5  # seconds between looks at the mailbox and at the nodes
_SHORTEST, _LONGEST = 2.0, 60.0  # seconds of work in a task; each stores a segment, and may be lost as a whole
_SHARE = 0.02  # of the time worked so far, that a task may take
_ALLOWED = {"worker": 3, "node": 10}  # losses of a trial, before it has failed
_SECONDS_TO_STOP = 60.0
_SECONDS_UNTIL_NOTE = 10.0  # without a place to run anything


@dataclass
class _Task(Ledger):
    number: int


def run_ray(
    work: Work,
    queue: Queue,
    emit: Emit,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float | None = None,
    deadline: float | None = None,
) -> None:
    """Run all groups on the cluster, at most `workers` tasks at a time (by default: what its nodes have room for).

    A trial that loses its worker is tried again, up to a limit; a loss after which its checkpoint is further on than
    before does not count. Errors of the learner are recorded as failures and not tried again.
    """
    gpus, device = gpus_and_device(work.device, gpus_per_worker)
    with told_on_stderr(), connected(address) as ray:
        if not places(ray, gpus):
            raise InputError(no_room(gpus))
        _Driver(ray, replace(work, device=device), queue, emit, workers, gpus, deadline).run()


class _Driver:
    """Keeps the cluster busy until nothing is left."""

    def __init__(
        self,
        ray: Any,
        work: Work,
        queue: Queue,
        emit: Emit,
        workers: int | None,
        gpus: float,
        deadline: float | None = None,
    ) -> None:
        self._ray, self._work, self._emit, self._workers, self._gpus = ray, work, emit, workers, gpus
        self._deadline = deadline
        self._waiting = queue
        self._alone: deque[Group] = deque()  # one of them has killed a worker: one a task, so that we learn which
        self._tasks: dict[Any, _Task] = {}  # by what Ray knows the task's result
        self._lost_at: dict[int, float] = {}  # trial -> how far its checkpoint was when it lost a worker
        self._losses: Counter[tuple[int, str]] = Counter()  # of a trial, with its worker or with its node
        self._said: set[str] = set()
        self._pace = 0.0  # seconds per group, as last seen
        self._count = 0
        self._started = self._had_room = time.monotonic()

    def run(self) -> None:
        ray = self._ray
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
        self._run_groups = ray.remote(run_groups).options(
            num_cpus=1,
            num_gpus=self._gpus,
            max_retries=0,  # what is lost runs again, but it is we who say how
            runtime_env={"env_vars": {**dict.fromkeys(THREAD_VARIABLES, "1"), **SAFE_PATH}},
        )
        self._parcel = _parcel(ray, self._work)
        try:
            while self._waiting or self._alone or self._tasks:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    raise time_is_over()
                self._hand_out()
                if self._tasks:
                    self._listen()
                else:
                    self._waiting.wait(self._deadline)
        except ray.exceptions.RayError as error:  # all that a task can do is handled where it ends
            raise EngineError(
                f"The connection to the Ray cluster was lost ({type(error).__name__}); what is complete is stored, run"
                " the same command to go on."
            ) from error
        except BaseException:
            with uninterrupted(), suppress(ray.exceptions.RayError):
                self._stop()
            raise
        finally:
            ray.kill(self._mailbox)

    def _hand_out(self) -> None:
        room = places(self._ray, self._gpus)
        self._note_room(room)
        # As many again wait in Ray's queue: a node that joins finds work at once, and an autoscaler sees the need.
        limit = self._workers or max(1, 2 * room)
        spent = time.monotonic() - self._started
        while len(self._tasks) < limit and (self._alone or self._waiting):
            if self._alone:
                groups = [self._alone.popleft()]
            else:
                seconds = min(_LONGEST, max(_SHORTEST, _SHARE * spent))
                groups = next_handout(self._waiting, self._pace, limit, seconds)
                if not groups:  # other drivers have taken the rest
                    return
            task = _Task(self._count)
            task.give(groups)
            self._tasks[self._run_groups.remote(self._parcel, groups, self._mailbox, task.number)] = task
            self._count += 1

    def _note_room(self, room: int) -> None:
        now = time.monotonic()
        if room:
            self._had_room = now
        elif now - self._had_room > _SECONDS_UNTIL_NOTE:
            self._tell(Note(f"Waiting. {no_room(self._gpus)}"))

    def _tell(self, event: Event) -> None:
        """All nodes may note the same; it is said once."""
        if isinstance(event, Note):
            if event.message in self._said:
                return
            self._said.add(event.message)
        self._emit(event)

    def _listen(self) -> None:
        ready, _ = self._ray.wait(list(self._tasks), timeout=_TICK)
        self._read_mail()
        for result in ready:
            self._end(result, self._tasks.pop(result))

    def _read_mail(self) -> None:
        tasks = {task.number: task for task in self._tasks.values()}
        for number, events in self._ray.get(self._mailbox.collect.remote()):
            if number in tasks:  # not of a lost one, whose trials run again
                self._hear(tasks[number], events)

    def _hear(self, task: _Task, events: Sequence[Event]) -> None:
        for event in events:
            task.hear(event)
            self._tell(event)

    def _end(self, result: Any, task: _Task) -> None:
        exceptions = self._ray.exceptions
        try:
            report: Report = self._ray.get(result)
        except exceptions.NodeDiedError:
            self._lose(task, "node", "a node of the cluster was lost; what it had not stored runs again")
        except exceptions.OutOfMemoryError:
            self._lose(task, "worker", "a node was out of memory and Ray killed its worker")
        except (exceptions.WorkerCrashedError, exceptions.LocalRayletDiedError):
            self._lose(task, "worker", "a worker process of the cluster died (out of memory is the usual reason)")
        except exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise EngineError(
                f"A task failed on the cluster ({type(cause).__name__}: {str(cause).strip().splitlines()[-1]}); are the"
                " same versions of memfluence and Ray installed on all nodes?"
            ) from error
        else:
            self._pace = report.seconds / len(task.groups)
            self._hear(task, report.events)
            if report.error is not None:
                raise report.error

    def _lose(self, task: _Task, kind: str, reason: str) -> None:
        """Run again what a lost task had not stored. One of several groups killed the worker: each goes on alone."""
        self._emit(WorkerLost(task.number, reason, len(task.done)))
        if kind == "worker" and len(task.groups) > 1:
            self._alone.extend(groups_of(task.unstored, self._work.group_size))
            return
        guilty = task.unstored if len(task.groups) == 1 else set()
        guilty = guilty - gone_on(self._work, guilty, self._lost_at)
        self._losses.update((trial, kind) for trial in guilty)
        failed = {trial for trial in guilty if self._losses[trial, kind] >= _ALLOWED[kind]}
        store = TrialStore.open(self._work.run, self._work.identity)
        for trial in sorted(failed):
            message = f"{reason}, {_ALLOWED[kind]} times in this trial"
            store.write_failure(Failure(trial, message))
            self._emit(TrialFailed(trial, message))
        again = groups_of(task.unstored - failed, self._work.group_size)
        if len(task.groups) == 1:
            self._alone.extendleft(reversed(again))
        else:
            self._waiting.give_back(reversed(again))

    def _stop(self) -> None:
        """Stop all tasks; each stores its completed trials first. Those that have not begun will not."""
        ray = self._ray
        begun = ray.get(self._mailbox.stop.remote())
        self._tasks = {result: task for result, task in self._tasks.items() if task.number in begun}
        until = time.monotonic() + _SECONDS_TO_STOP
        while self._tasks and time.monotonic() < until:
            ready, _ = ray.wait(list(self._tasks), timeout=_TICK)
            self._read_mail()
            for result in ready:
                task = self._tasks.pop(result)
                with suppress(ray.exceptions.RayError):  # it is lost
                    self._hear(task, ray.get(result).events)
        for result in self._tasks:
            ray.cancel(result, force=True)


def _parcel(ray: Any, work: Work) -> Parcel:
    """The work, on its way: the data go once to each node that needs them."""
    run = work.run.resolve()
    try:
        rest = ray.cloudpickle.dumps(replace(work, dataset=cast(Dataset, None), run=run))
        dataset = ray.put(work.dataset)
    except Exception as error:
        raise LearnerError(
            f"The learner or the data cannot be sent to the cluster ({error}); define the learner in a file or module"
            " (file.py:name)."
        ) from error
    return Parcel(uuid.uuid4().hex, dataset, rest, str(Path.cwd()), str(run), work.identity)
