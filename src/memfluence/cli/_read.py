"""`status` and `scores`."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from memfluence.cli._options import JsonOption, KeepOption, MemoryOption, RunArgument, TableOption
from memfluence.cli._output import as_json, number, say, show

__all__ = ["scores", "status"]

_SHOWN = 10  # rows that a person sees; --json and --out give all


def status(run: RunArgument, json: JsonOption = False) -> None:
    """How far a run is: trials done, part-way and failed, accuracies, who did what, damaged files."""
    from memfluence.engines.progress import duration
    from memfluence.runs import open_run

    found = open_run(run).status()
    if json:
        as_json(found)
        return
    say(
        f"{run}: {found['learner'] or 'imported trials'} on {found['dataset']},"
        f" {found['n_train']} training and {found['n_test']} test examples",
        f"  trials    {found['trials']} of {found['trials_wanted']} in {found['segments']} segments,"
        f" {found['trials_failed']} failed",
        f"  accuracy  {number(found['accuracy_in'])} on kept, {number(found['accuracy_out'])} on held-out,"
        f" {number(found['test_accuracy'])} on test examples",
    )
    if found["last_finished"] is not None:
        pace = found["trials_per_second"]
        pace = f"{pace:.3g} trials/s of late, " if pace is not None else ""
        say(f"  pace      {pace}the last trial {_ago(found['last_finished'])}")
    for maker, count in found["made_by"].items():
        say(f"  made by   {maker}: {count}")
    for line in _made_with(found["made_with"]):
        say(f"  made with {line}")
    known = [one for one in found["processes"] if one["process"] is not None]
    for one in known[:_SHOWN]:
        last = _ago(one["last_finished"])
        say(f"  process   {one['process']} of {one['host']}: {one['trials']}, the last {last}")
    if len(known) > _SHOWN:
        rest = sum(one["trials"] for one in known[_SHOWN:])
        say(f"  process   {len(known) - _SHOWN} more: {rest} (--json lists all)")
    failed = {failure["trial"] for failure in found["failures"]}
    for part in found["part_way"]:
        ago = duration(part["seconds_ago"])
        again = "; failed since, --retry-failed goes on from there" if part["trial"] in failed else ""
        say(f"  part-way  trial {part['trial']} is at {part['fraction']:.0%}, checkpointed {ago} ago{again}")
    for failure in found["failures"]:
        say(f"  failed    trial {failure['trial']}: {failure['message']}")
    for damage in found["damaged"]:
        say(f"  damaged   {damage['reason']}")


def _made_with(found: list[dict[str, Any]]) -> Iterator[str]:
    """Trials by the versions of libraries, where there are several; only those that differ are shown."""
    names = sorted({name for one in found for name in one["versions"]})
    differing = [name for name in names if len({one["versions"].get(name) for one in found}) > 1]
    for one in found if differing else ():
        shown = ", ".join(f"{name} {one['versions'].get(name, 'unknown')}" for name in differing)
        assumed = f" ({one['assumed']} by run.json, their segments do not say)" if one["assumed"] else ""
        yield f"{shown}: {one['trials']}{assumed}"


def _ago(when: float) -> str:
    """A time in seconds since 1970, seen from now; clocks of other hosts may be ahead."""
    import time

    from memfluence.engines.progress import duration

    return f"{duration(max(0.0, time.time() - when))} ago"


def scores(
    run: RunArgument,
    out: TableOption = None,
    keep: KeepOption = None,
    outcome: Annotated[
        str, typer.Option(help="What is averaged: correct, or what was recorded: margin or logit.")
    ] = "correct",
    estimator: Annotated[str, typer.Option(help="plain (Algorithm 1) or adjusted (less variance).")] = "plain",
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Memorization of every training example, with standard errors."""
    from memfluence.runs import Table, open_run
    from memfluence.runs.values import memorization_table

    opened = open_run(run, memory=memory)
    found = memorization_table(opened, keep, outcome=outcome, estimator=estimator)
    if out is not None:
        ids = opened.ids
        (found if ids is None else Table({**found.columns, "id": ids[0]})).write(out)
    if json:
        sizes = {"n_train": opened.info.n_train, "n_test": opened.info.n_test, "trials": len(opened.trials)}
        as_json({**sizes, "train": found.rows()})
        return
    values = found["memorization"]
    correct = outcome == "correct"
    say(
        f"{len(opened.trials)} trials; {int((values >= 0.25).sum())} of {len(values)} training examples"
        f" have memorization >= 0.25. The most memorized:"
        if correct
        else f"{len(opened.trials)} trials; how much keeping an example raises its mean {outcome}. The most:"
    )
    means = {"mean_in": "mean if kept", "mean_out": "mean if held out"}
    if correct:
        means = {"accuracy_in": "right if kept", "accuracy_out": "right if held out"}
    names = ("index", "label", "memorization", "stderr")
    most = (-values).argsort(kind="stable")[:_SHOWN]  # NaN last
    show(found.take(most), {name: name for name in names} | means)
    say(f"All of them are in {out}." if out else "All of them: --out FILE.csv or --json.")
