"""What engines with workers of their own keep account of: what is handed out, done, stored, and lost with a worker."""

from collections import deque
from dataclasses import dataclass, field

from memfluence.engines.events import Event, SegmentWritten, TrialDone, TrialFailed
from memfluence.engines.work import Group, Work
from memfluence.store import TrialStore

_MOST_GROUPS_PER_HANDOUT = 64


@dataclass(kw_only=True)
class Ledger:
    """What one worker was given and has said about it."""

    groups: list[Group] = field(default_factory=list)  # handed out last and not yet answered for
    done: set[int] = field(default_factory=set)  # trials that it said it has done but not that they are stored
    unstored: set[int] = field(default_factory=set)  # trials handed out that are neither stored nor failed

    def give(self, groups: list[Group]) -> None:
        self.groups = groups
        self.unstored.update(trial for group in groups for trial in group.wanted)

    def hear(self, event: Event) -> None:
        if isinstance(event, TrialDone):
            self.done.add(event.trial)
        elif isinstance(event, TrialFailed):
            self.unstored.discard(event.trial)
        elif isinstance(event, SegmentWritten):
            self.done.difference_update(event.trials)
            self.unstored.difference_update(event.trials)


def next_handout(waiting: deque[Group], pace: float, team: int, seconds: float) -> list[Group]:
    """As many groups as take about so many seconds, fewer towards the end so that workers finish together.

    `pace` is how many seconds a group took last; 0 if nobody knows yet.
    """
    wanted = int(seconds / pace) if pace > 0 else 1
    count = max(1, min(wanted, _MOST_GROUPS_PER_HANDOUT, len(waiting) // (2 * team)))
    return [waiting.popleft() for _ in range(min(count, len(waiting)))]


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
