"""`verify`: checks that a run holds what was written there, and what its plan and its learner give.

Every byte of every segment is read and held against the digest in its name and Parquet's page checksums. Every mask is
drawn again from the plan. Every record of a trial that is there more than once is compared. A sample of trials is
trained again, if asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.designs import Design, Groups, planned
from memfluence.errors import DesignError, MemfluenceError, StoreError
from memfluence.records import Failure
from memfluence.store import Damage, Location, Rows, StoredCheckpoint, TrialStore, pack

if TYPE_CHECKING:
    from memfluence.training.again import Again

Precedence = tuple[float, bytes]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, as a sentence; `what` is one word of it for programs."""

    what: str  # segment, trial, note, run or sample
    message: str
    segment: str | None = None
    trial: int | None = None


@dataclass(frozen=True, eq=False)
class Survey:
    trials: dict[int, str]  # good trials, and the segment whose record counts
    segments: int
    copies: int  # records that are there once more, and equal
    damaged: tuple[Damage, ...]  # segments
    bad: dict[tuple[str, int], str]  # segment and trial of records that do not belong in the run, and why
    notes: tuple[Damage, ...]  # unreadable notes of failures, and checkpoints
    other: tuple[str, ...]  # what is wrong with the run as a whole
    failures: dict[int, Failure]
    part_way: tuple[StoredCheckpoint, ...]
    unchecked: tuple[str, ...] = field(default=())  # what could not be held against anything, and why


def survey(store: TrialStore) -> Survey:
    """Read everything. Only trial numbers, times and 16 bytes for each record are held, whatever the run's size."""
    other, unchecked = [], []
    design = None
    try:
        store.examples.labels()
    except StoreError as error:
        other.append(str(error))
    try:
        design = design_of(store)
    except MemfluenceError as error:
        other.append(f"{store.path}/run.json: {error}")
    else:
        if design is None:
            why = "is unknown (imported trials)" if not _has_plan(store) else "took them from a file (explicit)"
            unchecked.append(f"masks were not compared with the plan, which {why}")
    first: dict[int, tuple[Precedence, str]] = {}  # of each good trial the record that counts, and its segment
    bad: dict[tuple[str, int], str] = {}
    others: dict[int, list[tuple[Precedence, str]]] = {}  # of trials that are there more than once

    damaged: list[Damage] = []
    segments = 0
    for path, rows in store.each_segment(damaged, fresh=True):
        name, segments = path.name, segments + 1
        reasons = dict(_unplanned(rows, store.info.trials, len(store.info.kinds), design))
        for row, (trial, order) in enumerate(zip(rows.numbers.tolist(), rows.precedence)):
            if row in reasons:
                bad[name, trial] = reasons[row]
            elif trial not in first:
                first[trial] = order, name
            else:
                before, first[trial] = sorted([first[trial], (order, name)], reverse=True)
                others.setdefault(trial, []).append(before)
    strays = [one for one in damaged if one.identity is not None]
    if strays and not segments and all(one.identity == strays[0].identity for one in strays):  # run.json is wrong
        damaged = [one for one in damaged if one.identity is None]
        other.append(
            f"{store.path}/run.json is not that of the {len(strays)} whole segment(s) beside it, which all are of one"
            " other run; restore it from a copy. If it is right, the run's own command sets them aside."
        )
    copies = 0
    for trial, more in others.items():
        counts, segment = first[trial]
        for (when, record), name in more:
            if record == counts[1]:
                copies += 1
            else:
                why = "was finished first" if counts[0] < when else "has the lower digest"
                bad[name, trial] = f"differs from the one in {segment}, which {why} and counts"
    trials = {trial: name for trial, (_, name) in sorted(first.items())}
    return Survey(
        trials,
        segments,
        copies,
        tuple(damaged),
        dict(sorted(bad.items())),
        tuple(store.damaged_notes()),
        tuple(other),
        store.failures(trials),
        tuple(store.checkpoints().part_way(trials)),
        tuple(unchecked),
    )


def design_of(store: TrialStore) -> Design | None:
    """The design of the run's trials; None where the run does not say enough to draw its masks again."""
    if not _has_plan(store):
        return None
    plan = dict(store.info.plan or {})
    options = plan.get("options", {})
    groups = Groups(*store.examples.groups()) if "groups" in options else None
    plan["options"] = {key: value for key, value in options.items() if key not in ("groups", "n_groups")}
    try:
        return planned(plan, groups)
    except (KeyError, TypeError, ValueError) as error:
        raise DesignError(f"its plan cannot be read ({error!s:.100}).") from error


def _has_plan(store: TrialStore) -> bool:
    return store.info.plan is not None and "design" in store.info.plan


def _unplanned(rows: Rows, trials: int, kinds: int, design: Design | None) -> Iterator[tuple[int, str]]:
    """Rows that the run cannot have, with the reason."""
    masks = rows.packed("mask")
    for row, (trial, kind) in enumerate(zip(rows.numbers.tolist(), rows.kinds.tolist())):
        if not 0 <= trial < trials or (design is not None and design.limit is not None and trial >= design.limit):
            yield row, f"is outside the run, which has trials 0 to {trials - 1}"
        elif not 0 <= kind < kinds:
            yield row, f"is of kind {kind}, and the run has {kinds} kind(s), counted from 0"
        elif design is not None:
            drawn = design.trial(trial)
            if drawn.kind != kind:
                yield row, f"is of kind {kind}, and the plan gives it kind {drawn.kind}"
            elif differ := int(np.unpackbits(pack(drawn.mask) ^ masks[row]).sum()):
                yield row, f"has a mask that differs from the plan's in {differ} example(s)"


@dataclass(frozen=True)
class Verified:
    """The findings of `verify`."""

    run: str
    trials: int  # good ones
    trials_wanted: int
    trials_failed: int
    trials_part_way: int
    segments: int
    copies: int  # records that are there more than once, and equal: they count once
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]  # what could not be checked, and why
    sample: "tuple[Again, ...]" = ()

    @property
    def is_clean(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"clean": self.is_clean, **asdict(self)}


def verify(
    run: str | Location,
    *,
    sample: int = 0,
    seed: int | None = None,
    dataset: str | None = None,
    learner: Any = None,
    settings: Mapping[str, str] | None = None,
    device: str = "auto",
) -> Verified:
    """Check a run, and train `sample` of its trials again; nothing is written.

    The data and the learner are those that the run names, or what is given. `seed` draws the same sample again.
    """
    store = TrialStore.open(run)
    found = survey(store)
    problems, notes = problems_of(found), list(found.unchecked)
    again: tuple[Again, ...] = ()
    if sample:
        from memfluence.training.again import run_again  # learners and data are needed for this alone

        again = run_again(
            store,
            design_of(store),
            sorted(found.trials),
            sample,
            seed,
            dataset=dataset,
            learner=learner,
            settings=settings,
            device=device,
        )
        problems += [Problem("sample", one.message, trial=one.trial) for one in again if one.is_wrong]
        notes += [one.message for one in again if one.differ and not one.is_wrong]
    return Verified(
        str(run),
        len(found.trials),
        store.info.trials,
        len(found.failures),
        len(found.part_way),
        found.segments,
        found.copies,
        tuple(problems),
        tuple(notes),
        again,
    )


def problems_of(found: Survey) -> list[Problem]:
    """Everything that is wrong, one sentence each."""
    return [
        *(Problem("run", message) for message in found.other),
        *(Problem("segment", damage.reason, segment=damage.path.name) for damage in found.damaged),
        *(
            Problem("trial", f"Trial {trial} of {segment} {why}.", segment, trial)
            for (segment, trial), why in found.bad.items()
        ),
        *(Problem("note", damage.reason) for damage in found.notes),
    ]
