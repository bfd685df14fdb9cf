"""`verify`: is everything in a run what was written there, and what its plan and its learner give?

Every byte of every segment is read and held against the digest in its name and Parquet's page checksums. Every mask is
drawn again from the plan. Every record of a trial that is there more than once is compared. A sample of trials is
trained again, if asked.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from memfluence.store import Location, TrialStore
from memfluence.store.upkeep._survey import Survey, survey

if TYPE_CHECKING:
    from memfluence.store.upkeep.sampling import Again

__all__ = ["Problem", "Verified", "problems_of", "verify"]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, as a sentence; `what` is one word of it for programs."""

    what: str  # segment, trial, note, run or sample
    message: str
    segment: str | None = None
    trial: int | None = None


@dataclass(frozen=True)
class Verified:
    """What `verify` found."""

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
        from memfluence.store.upkeep.sampling import run_again  # learners and data are needed for this alone

        again = run_again(
            store,
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
            Problem("trial", f"Trial {one.trial} of {one.segment} {one.reason}.", one.segment, one.trial)
            for one in found.bad
        ),
        *(Problem("note", damage.reason) for damage in found.notes),
    ]
