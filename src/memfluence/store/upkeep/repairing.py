"""`repair`: what does not belong in a run is set aside in its damaged/, and what that leaves to be run again is said.

Nothing is deleted. A segment whose bytes are not those that were written goes as a whole. Of one that holds trials
which the plan would not give, or of which there are two different records, the good rows are first written to a new
segment; then all such segments are condemned at once, and go one by one. Killed at any moment the run has all its good
trials, some of them perhaps twice, and `repair` (or `run`) goes on.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from memfluence.store import Damage, DamagedSegmentError, Location, TrialStore
from memfluence.store.upkeep.verifying import Problem, Survey, problems_of, survey


@dataclass(frozen=True)
class Repaired:
    """What `repair` found and did, or with `dry_run` would do."""

    run: str
    dry_run: bool
    problems: tuple[Problem, ...]
    set_aside: tuple[str, ...]  # files that are in damaged/ now
    rewritten: int  # good trials that stood beside bad ones and have a new segment
    missing: tuple[int, ...]  # trials that the run lacks now: neither stored nor failed
    left: tuple[Problem, ...]  # what cannot be mended here
    can_run_again: bool  # whether the run knows how its trials were made

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def repair(run: str | Location, *, dry_run: bool = False) -> Repaired:
    """Set aside what `verify` finds wrong; with `dry_run` only say what that would be."""
    store = TrialStore.open(run)
    found = first = survey(store)
    set_aside: list[str] = []
    rewritten = 0
    while files := _files_of(store, found):
        set_aside += [damage.path.name for damage in files]
        rewritten += len(_beside_bad(found))
        if dry_run:
            break
        if bad := _keep_the_good(store, found):
            store.condemn(bad)
        store.set_aside(files)
        store.condemn()
        found = survey(store)  # another process may have compacted some of it meanwhile
    known = {*found.trials, *found.failures}
    return Repaired(
        str(run),
        dry_run,
        tuple(problems_of(first)),
        tuple(set_aside),
        rewritten,
        tuple(trial for trial in range(store.info.trials) if trial not in known),
        tuple(Problem("run", message) for message in found.other),
        store.info.learner is not None,
    )


def _files_of(store: TrialStore, found: Survey) -> list[Damage]:
    """Files that have to go."""
    mixed = {segment: why for (segment, _), why in found.bad.items()}
    return [*found.damaged, *(Damage(store.segment_path(name), why) for name, why in mixed.items()), *found.notes]


def _beside_bad(found: Survey) -> list[int]:
    """Good trials that stand in a segment with bad ones and nowhere else that was read before."""
    mixed = {segment for segment, _ in found.bad}
    return [trial for trial, name in found.trials.items() if name in mixed]


def _keep_the_good(store: TrialStore, found: Survey) -> list[str]:
    """Write the good rows of segments that hold bad ones as new segments; gives the names of the old ones."""
    bad: dict[str, list[int]] = {}
    for segment, trial in found.bad:
        bad.setdefault(segment, []).append(trial)
    for name, trials in bad.items():
        try:
            rows = store.read_rows(name)
        except (FileNotFoundError, DamagedSegmentError):
            continue  # since just now; the next look at the run finds out
        good = rows.take(np.flatnonzero(~np.isin(rows.numbers, trials)))
        if len(good):
            store.write_rows(good)
    return list(bad)
