"""`local`: groups one after another in this process."""

import time
from contextlib import chdir

from memfluence.engines._signals import interrupted_at, noticed_interrupt, time_is_over
from memfluence.engines.environment import one_thread, safe_joblib
from memfluence.engines.events import Emit
from memfluence.engines.handouts import Queue
from memfluence.engines.work import GroupRunner, Work

_DEADLY = (
    "two processes have ended while they trained it, so it may be what ended them; a worker process"
    " (engine='processes') would end alone"
)


def run_local(work: Work, queue: Queue, emit: Emit, *, deadline: float | None = None) -> None:
    """Run all groups. Whatever ends it early, an interrupt too, the completed trials are stored first."""
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
