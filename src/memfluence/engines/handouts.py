"""Handing out groups: what is left of a run, which others may be at as well, and what each worker was given.

Engines hand them to their workers. The engine `local` is here, because it takes them itself, one after another.
"""

import fcntl
import os
import random
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from memfluence.engines.environment import interrupted_at, noticed_interrupt, one_thread, safe_joblib, time_is_over
from memfluence.engines.events import Emit, Event, Note, SegmentWritten, StoredElsewhere, TrialDone, TrialFailed
from memfluence.engines.work import Group, GroupRunner, Work
from memfluence.errors import MemfluenceError
from memfluence.learners import EstimatorLearner, FunctionLearner, Learner
from memfluence.store import DamagedSegmentError, TrialStore, is_running, this_process

_MOST_GROUPS_PER_HANDOUT = 64
_SECONDS_BETWEEN_LOOKS = 1.0  # at what others have stored
_SHARE_OF_LOOKS = 0.02  # of the time, where looking takes long
_TICK = 0.2  # seconds
_ABANDONED = 86400.0  # seconds after which the note goes of a process of which nothing is known
_DEADLY = (
    "two processes have ended while they trained it, so it may be what ended them; a worker process"
    " (`engine='processes'`) would end alone"
)
_HERE = "-here"  # ends the name of the note of a process that may end with the code that it trains


@contextmanager
def shared(work: Work, groups: Iterable[Group], emit: Emit, *, trains_here: bool) -> Iterator["Queue"]:
    """The groups of a run that are to be handed out, while other processes may be at the same run.

    Each process writes down in RUN/.taken which groups it has taken; the others pass over those, and over what is
    stored or has failed meanwhile. In the end they wait for what processes of this machine have taken, as long as
    those run. Whether one on another machine runs nobody knows here, so its groups are left for the end and then
    taken. On storage elsewhere there are no such notes: groups are taken in random order.

    A process that is killed leaves its note behind. If code of the user's own was trained in the process itself
    (`trains_here`), the last group of the note may be the cause: it comes last in the next such process, and
    `Queue.deadly` has those with which two have ended.
    """
    may_crash = trains_here and _is_own_code(work.learner)
    if not isinstance(work.run, Path):
        yield Queue(work, sorted(groups, key=lambda group: random.random()), emit, is_shared=True)
        return
    notes = work.run / ".taken"
    note = notes / (this_process() + (_HERE if may_crash else ""))
    queue = Queue(work, groups, emit, is_shared=True, note=note)
    queue.read_notes_of_the_dead(may_crash)
    try:
        yield queue
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)
            notes.rmdir()  # if it was the last one


def _is_own_code(learner: Learner) -> bool:
    """Whether it is code of the user's own that trains, which may do anything to its process."""
    inner = getattr(learner, "learner", learner)  # of a file
    is_ours = type(inner).__module__.partition(".")[0] == __name__.partition(".")[0]
    return not is_ours or isinstance(inner, EstimatorLearner | FunctionLearner)


class Queue:
    """The groups of a run that are still to be handed out: in their order, or as `shared` says."""

    def __init__(
        self,
        work: Work,
        groups: Iterable[Group],
        emit: Emit,
        *,
        is_shared: bool = False,
        note: Path | None = None,
    ) -> None:
        self._waiting, self._emit, self._is_shared, self._note = deque(groups), emit, is_shared, note
        self._store = TrialStore.open(work.run, work.identity)
        self._read: dict[str, tuple[int, set[int]]] = {}  # how far each note was read, and what it says
        self._seen: set[str] = set()  # names of files
        self._found: deque[set[int]] = deque()  # trials that were stored or have failed, by others or here
        self._over: set[int] = set()  # all of them
        self._looking: threading.Thread | None = None
        self._next_look = 0.0
        self._has_told = False
        self.deadly: list[Group] = []
        if is_shared:
            self._find(is_first=True)

    def __len__(self) -> int:
        """How many groups are left, those that others have taken too."""
        return len(self._waiting)

    def take(self, count: int) -> list[Group]:
        """The next groups, up to so many. None: what is left, if anything, others have taken."""
        self._look()
        with self._alone():
            running, unknown = self._taken_by_others()
            taken = self._pick(count, [*running, *unknown]) or self._pick(count, running)
            if taken and self._note is not None:
                with suppress(OSError), self._note.open("a") as file:  # a full disk: others do not hear of it
                    file.writelines(f"{group.number}\n" for group in taken)
        return taken

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process of this machine at a time reads the notes and writes its own, so that no two take the same."""
        held = None
        with suppress(OSError):  # a read-only disk
            if self._note is not None:
                self._note.parent.mkdir(exist_ok=True)
                held = os.open(self._note.parent, os.O_RDONLY)
                fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if held is not None:
                os.close(held)

    def _pick(self, count: int, others: Collection[set[int]]) -> list[Group]:
        """Groups that are not among those of others, which go to the end."""
        picked: list[Group] = []
        for _ in range(len(self._waiting)):
            if len(picked) == count:
                break
            group = self._waiting.popleft()
            (self._waiting if _is_in(group, others) else picked).append(group)
        return picked

    def give_back(self, groups: Iterable[Group]) -> None:
        """Groups that were taken and are to be handed out again, first of all."""
        self._waiting.extendleft(groups)
        self._found.append(set())

    def wait(self, deadline: float | None = None) -> bool:
        """Until there is something to take, or nothing is left; gives which of the two."""
        while True:
            self._look()
            running, _ = self._taken_by_others()
            if not all(_is_in(group, running) for group in self._waiting):
                return True
            if not self._waiting:
                return False
            if not self._has_told:
                self._has_told = True
                count = sum(len(group.wanted) for group in self._waiting)
                self._emit(Note(f"Another process is at the last {count} trial(s) of this run; waiting for them."))
            if deadline is not None and time.monotonic() >= deadline:
                raise time_is_over()
            time.sleep(_TICK)

    def _taken_by_others(self) -> tuple[list[set[int]], list[set[int]]]:
        """The groups that each process has taken that runs on this machine, and each of which nothing is known."""
        running: list[set[int]] = []
        unknown: list[set[int]] = []
        ended = set(self._read)
        for path in self._notes():
            if path == self._note or (runs := is_running(path.name.removesuffix(_HERE))) is False:
                continue
            ended.discard(path.name)
            read, taken = self._read.get(path.name, (0, set()))
            with suppress(OSError, ValueError), path.open("rb") as file:
                file.seek(read)
                content = file.read()
                content = content[: content.rfind(b"\n") + 1]
                taken.update(map(int, content.split()))
                self._read[path.name] = read + len(content), taken
            (running if runs else unknown).append(taken)
        if ended:  # what it had taken is stored or is to be taken again
            for name in ended:
                del self._read[name]
            self._next_look = 0.0
            self._look()
        return running, unknown

    def _notes(self) -> list[Path]:
        try:
            return [] if self._note is None else sorted(self._note.parent.iterdir())
        except OSError:
            return []

    def read_notes_of_the_dead(self, may_crash: bool) -> None:
        """The notes of processes that are gone go, but not while one's last group is wanted that may be the cause."""
        waiting = {group.number: group for group in self._waiting}
        ended_with: dict[int, list[Path]] = {}
        for path in self._notes():
            runs = is_running(path.name.removesuffix(_HERE))
            with suppress(OSError, ValueError, IndexError):
                last = int(path.read_text().split()[-1]) if runs is False and path.name.endswith(_HERE) else -1
                if last in waiting:
                    ended_with.setdefault(last, []).append(path)
                elif runs is False or (runs is None and time.time() - path.stat().st_mtime > _ABANDONED):
                    path.unlink()
        for number, paths in ended_with.items() if may_crash else ():
            group = waiting[number]
            self._waiting.remove(group)
            if len(paths) == 1:
                self._waiting.append(group)
                self._emit(Note(f"A process ended while it trained {_named(group)}, which will come last this time."))
            else:
                self.deadly.append(group)
                for path in paths:
                    path.unlink(missing_ok=True)

    def _look(self) -> None:
        """At what is stored, now and then. Elsewhere that may take long, and nobody waits for it."""
        is_looking = self._looking is not None and self._looking.is_alive()
        if self._is_shared and self._waiting and time.monotonic() >= self._next_look and not is_looking:
            if self._note is None:
                self._looking = threading.Thread(target=self._find, daemon=True)
                self._looking.start()
            else:
                self._find()
        while self._found:
            self._over |= self._found.popleft()
            self._pass_over()

    def _find(self, is_first: bool = False) -> None:
        """Trials in files that are new; at the first look all are old. Names of notes of failures begin with theirs."""
        began = time.monotonic()
        with suppress(MemfluenceError, OSError):
            new = {*self._store.segment_names(), *self._store.failure_names()} - self._seen
            self._seen |= new
            for name in () if is_first else sorted(new):
                with suppress(FileNotFoundError, DamagedSegmentError, ValueError):
                    is_failure = name.endswith(".json")
                    trials = [int(name.partition("-")[0])] if is_failure else self._store.read_rows(name).numbers
                    self._found.append(set(map(int, trials)))
        now = time.monotonic()
        self._next_look = now + max(_SECONDS_BETWEEN_LOOKS, (now - began) / _SHARE_OF_LOOKS)

    def _pass_over(self) -> None:
        passed = [trial for group in self._waiting for trial in group.wanted if trial in self._over]
        if passed:
            left = (replace(group, wanted=tuple(set(group.wanted) - self._over)) for group in self._waiting)
            self._waiting = deque(replace(group, wanted=tuple(sorted(group.wanted))) for group in left if group.wanted)
            self._emit(StoredElsewhere(tuple(passed)))


def _is_in(group: Group, others: Collection[set[int]]) -> bool:
    return any(group.number in taken for taken in others)


def _named(group: Group) -> str:
    trials = ", ".join(map(str, group.wanted[:5])) + (", ..." if len(group.wanted) > 5 else "")
    return f"trial {trials}" if len(group.wanted) == 1 else f"the trials {trials}"


@dataclass(kw_only=True)
class Ledger:
    """What one worker was given and has said about it."""

    groups: list[Group] = field(default_factory=list)  # handed out last and not yet answered for
    done: set[int] = field(default_factory=set)  # trials that it said it has done but not that they are stored
    unstored: set[int] = field(default_factory=set)  # trials handed out that are neither stored nor failed
    left: set[int] = field(default_factory=set)  # of the group that it is at: neither done nor failed
    begun: float = 0.0  # when it began that group
    has_settled: bool = False  # whether a trial was stored, or has failed
    _ahead: deque[Group] = field(default_factory=deque)

    def give(self, groups: list[Group]) -> None:
        self.groups = groups
        self.unstored.update(trial for group in groups for trial in group.wanted)
        self._ahead.extend(groups)
        self._begin_the_next()

    def _begin_the_next(self) -> None:
        self.left = set(self._ahead.popleft().wanted) if self._ahead else set()
        self.begun = time.monotonic()

    def hear(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            self.done.add(event.trial)
        elif isinstance(event, TrialFailed):
            self.unstored.discard(event.trial)
        elif isinstance(event, SegmentWritten):
            self.done.difference_update(event.trials)
            self.unstored.difference_update(event.trials)
        self.has_settled |= isinstance(event, TrialFailed | SegmentWritten)
        if isinstance(event, TrialDone | TrialFailed) and event.trial in self.left:
            self.left.discard(event.trial)
            if not self.left:
                self._begin_the_next()


def next_handout(waiting: Queue, pace: float, team: int, seconds: float) -> list[Group]:
    """As many groups as take about so many seconds, fewer towards the end so that workers finish together.

    `pace` is how many seconds a group took last; 0 if nobody knows yet.
    """
    wanted = int(seconds / pace) if pace > 0 else 1
    return waiting.take(max(1, min(wanted, _MOST_GROUPS_PER_HANDOUT, len(waiting) // (2 * team))))


def gone_on(work: Work, trials: set[int], lost_at: dict[int, float]) -> set[int]:
    """Those whose checkpoint is further on than when they lost a worker before; `lost_at` is brought up to date.

    They need not train again what led there, and are tried a finite number of times even if they kill their workers.
    """
    if not work.checkpoint_every:
        return set()
    further = {
        one.trial: one.fraction
        for one in TrialStore.open(work.run, work.identity).checkpoints().part_way(())
        if one.trial in trials and one.fraction > lost_at.get(one.trial, 0.0)
    }
    lost_at |= further
    return set(further)


# ---- the engine `local`


def run_local(work: Work, queue: Queue, emit: Emit, *, deadline: float | None = None) -> None:
    """Run all groups in this process. Whatever ends it early, an interrupt too, what is complete is stored first."""
    safe_joblib()
    with (
        one_thread(),
        chdir("."),  # whatever the learner does, the caller is in the same directory afterwards
        interrupted_at(deadline),
        noticed_interrupt() as interrupted,
        GroupRunner(work, emit) as runner,
    ):
        for group in queue.deadly:
            runner.fail(group.wanted, _DEADLY)
        while queue:
            if deadline is not None and time.monotonic() >= deadline:
                raise time_is_over()
            if groups := queue.take(1):
                runner.run(groups[0])
            else:
                runner.flush()
                queue.wait(deadline)
            if interrupted():  # and the learner swallowed it
                raise KeyboardInterrupt
