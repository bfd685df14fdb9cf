"""`verify`, `repair`, `merge` and `compact`."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from memfluence.cli._terminal import (
    DataOption,
    DeviceOption,
    JsonOption,
    RunArgument,
    Said,
    SetOption,
    as_json,
    say,
    stdout_to_stderr,
)

_PROBLEMS = 1  # exit code
_REPAIRED = ("segment", "trial", "note")  # kinds of problem that 'repair' sets aside
_SHOWN = 20  # problems of each kind that are printed


def verify(
    run: RunArgument,
    sample: Annotated[int, typer.Option(min=0, help="How many trials, drawn at random, are trained again.")] = 0,
    seed: Annotated[int | None, "Draws the same sample again.  [default: another each time]"] = None,
    data: DataOption = None,
    learner: Annotated[str | None, "The run's learner, if it is not built in."] = None,
    settings: SetOption = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Check every byte, every mask and every copy in a run; train a sample again. Exit code 1: something is wrong."""
    if sample:
        from memfluence.engines import one_thread_from_the_start

        one_thread_from_the_start()
    from memfluence.store import upkeep

    with stdout_to_stderr():  # what learners print is not our output
        found = upkeep.verify(
            run, sample=sample, seed=seed, dataset=data, learner=learner, settings=settings, device=device
        )
    if json:
        as_json(found.to_json())
    else:
        say(*_first([problem.message for problem in found.problems]), *(f"note: {note}" for note in found.notes))
        copies = f", {found.copies} more copies of some of them" if found.copies else ""
        again = f", {len(found.sample)} trained again" if sample else ""
        say(
            f"{run}: {found.trials} of {found.trials_wanted} trials in {found.segments} segments{copies},"
            f" {found.trials_failed} failed, {found.trials_part_way} part-way{again}:"
            f" {'all is as it should be' if found.is_clean else _count(found.problems, 'problem')}."
        )
        if any(problem.what in _REPAIRED for problem in found.problems):
            say(f"'memfluence repair {run}' sets aside what is wrong; --dry-run shows what that would be.")
    if not found.is_clean:
        raise typer.Exit(_PROBLEMS)


def _first(lines: list[str]) -> list[str]:
    """The first lines, as many as people read; a large run may have a fault in every trial."""
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"... and {more} more; --json has them all."] if more > 0 else [])]


def repair(
    run: RunArgument,
    dry_run: Annotated[bool, "Say what would be done, and do nothing."] = False,
    json: JsonOption = False,
) -> None:
    """Set aside in RUN/damaged what verify finds wrong, and list what will run again. Nothing is deleted."""
    from memfluence.store import upkeep

    done = upkeep.repair(run, dry_run=dry_run)
    if json:
        as_json(done.to_json())
    else:
        would = "would be " if dry_run else ""
        say(*_first([problem.message for problem in done.problems]))
        say(*_first([f"{name} {would or 'is '}set aside in {run}/damaged." for name in done.set_aside]))
        if done.rewritten:
            say(f"{done.rewritten} good trials beside them {would or 'were '}written to new segments.")
        if done.missing:
            how = "the run's own command runs them" if done.can_run_again else "they have to be imported again"
            say(f"{len(done.missing)} trials {would or 'are '}missing, and {how}: {_ranges(done.missing)}.")
        if not done.problems:
            say(f"{run}: nothing is wrong.")
        say(*(f"Cannot be mended here: {problem.message}" for problem in done.left))
    if done.left:
        raise typer.Exit(_PROBLEMS)


def merge(
    out: Annotated[str, "The run to join: new, or there.", "OUT"],
    runs: Annotated[list[str], "Directories of runs, or their URIs.", "RUN..."],
    trials: Annotated[int | None, "Only the first so many trials."] = None,
    record: Annotated[
        str | None,
        "Of what was recorded beside correctness only this, such as test_margin; none: right and wrong alone."
        "  [default: all of it]",
    ] = None,
) -> Said:
    """Join runs of the same data, learner and plan that were made in different places, or copy a part of one."""
    from memfluence.store import upkeep
    from memfluence.training.options import names

    kept = None if record is None else () if record == "none" else names(record)
    done = upkeep.merge(out, runs, trials=trials, record=kept)
    yield done.to_json()
    say(f"{done.added} trials added to {out}, {done.already_there} were there already; it has {done.trials} now.")
    if done.differing:
        say(
            f"The runs had different records of {_count(done.differing, 'trial')}: {_ranges(done.differing)}; of"
            " each the one that was finished first counts."
        )


def compact(run: RunArgument) -> Said:
    """Join many small segments into few large ones. Safe while others write to the run or read it."""
    from memfluence.store import upkeep

    done = upkeep.compact(run)
    yield done.to_json()
    say(*(f"left as it is: {reason}" for reason in done.damaged))
    say(f"{run}: {done.segments_before} segments before, {done.segments} now.")


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _ranges(numbers: Iterable[int], most: int = 12) -> str:
    """Ascending numbers as 3-7, 12."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in found[:most]]
    return ", ".join(shown) + (f" and {len(found) - most} more ranges" if len(found) > most else "")
