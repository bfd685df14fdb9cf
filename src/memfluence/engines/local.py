"""`local`: groups one after another in this process."""

import time
from collections.abc import Sequence

from memfluence.engines._signals import interrupted_at, noticed_interrupt, time_is_over
from memfluence.engines.environment import one_thread, safe_joblib
from memfluence.engines.events import Emit
from memfluence.engines.work import Group, GroupRunner, Work


def run_local(work: Work, groups: Sequence[Group], emit: Emit, *, deadline: float | None = None) -> None:
    """Run all groups. Whatever ends it early, an interrupt too, the completed trials are stored first."""
    safe_joblib()
    with (
        one_thread(),
        interrupted_at(deadline),
        noticed_interrupt() as interrupted,
        GroupRunner(work, emit) as runner,
    ):
        for group in groups:
            if deadline is not None and time.monotonic() >= deadline:
                raise time_is_over()
            runner.run(group)
            if interrupted():  # and the learner swallowed it
                raise KeyboardInterrupt
