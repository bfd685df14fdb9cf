"""`run`, `plan` and `status`."""

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Annotated, Any

import typer

from memfluence.cli._terminal import (
    DatasetArgument,
    InflOption,
    JsonOption,
    MemOption,
    MemoryOption,
    RunArgument,
    Said,
    as_json,
    number,
    say,
    size,
    stdout_to_stderr,
    table,
)
from memfluence.errors import InputError, TrialsFailedError
from memfluence.training.options import PlanOptions, RunOptions

_SHOWN = 10  # processes that a person sees; --json gives all


def run(dataset: DatasetArgument, json: JsonOption = False, **options: Annotated[Any, RunOptions]) -> None:
    """Train many models on random subsets of DATASET; the same command again goes on where it stopped."""
    options = kept_apart(options)
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    from memfluence.runs.status import status_of
    from memfluence.runs.until import trained
    from memfluence.store import TrialStore
    from memfluence.training.campaign import failed_trials, prepare

    campaign = prepare(RunOptions(dataset, **options))
    failed: TrialsFailedError | None = None
    with stdout_to_stderr():  # what learners print is not our output
        try:
            store = trained(campaign)
        except TrialsFailedError as error:  # its status is said all the same
            failed, store = error, TrialStore.open(campaign.out)
    status = status_of(store)
    if json:
        as_json(status)
    else:
        what = "mean score on test examples" if status["outcome"] == "score" else "test accuracy"
        say(
            f"{status['trials']} of {status['trials_wanted']} trials in {store.path}:"
            f" {what} {number(status['test_accuracy'])},"
            f" on kept examples {number(status['accuracy_in'])}, on held-out ones {number(status['accuracy_out'])}.",
        )
        if status["trials"]:
            say(f"Next: memfluence report {shlex.quote(str(store.path))}")
    if failed := failed or failed_trials(store):
        raise failed


def kept_apart(options: dict[str, Any]) -> dict[str, Any]:
    """Options of training by which a learner from a file or module runs in a process of its own, with one worker too.

    It may crash, exit, hang or fork, and the command goes on. In Python a script may have no place to start processes
    from.
    """
    is_own = ":" in (options.get("learner") or "")
    return {**options, "engine": "processes"} if is_own and options.get("engine") is None else options


def plan(
    context: typer.Context,
    dataset: Annotated[str | None, "As for run; or --run RUN.", "DATASET"] = None,
    run: Annotated[str | None, "Plan more trials of this run, from those it has.", "--run RUN"] = None,
    stderr: Annotated[float | None, "With --run: target standard error."] = None,
    jaccard: Annotated[float | None, "With --run: target Jaccard index of the pairs of two runs."] = None,
    fdr: Annotated[float | None, "With --run: target share of pairs by chance."] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    memory: MemoryOption = None,
    **options: Annotated[Any, PlanOptions],
) -> Said:
    """Say how long a run will take, how much disk and memory, and how sure its scores will be.

    With --run instead of DATASET: how many more trials a target takes, from the trials so far.
    """
    if (dataset is None) == (run is None):
        raise InputError("Give a DATASET to plan a new run, or --run RUN to plan more trials of a run.")
    targets = {"stderr": stderr, "jaccard": jaccard, "fdr": fdr}
    if run is not None:
        of_a_new_run = [one.name for one in fields(PlanOptions) if one.name not in ("dataset", "keep", "masks")]
        _refuse(context, of_a_new_run, "What is planned with --run RUN is more trials of its own kind; leave out")
        chosen = options.get("keep") or []
        if len(chosen) > 1:
            raise InputError("With --run, --keep chooses one fraction of the run's; give one.")
        keep = chosen[0] if chosen else None
        yield from _plan_more(run, {**targets, "mem": mem, "infl": infl, "keep": keep}, memory)
        return
    _refuse(
        context,
        (*targets, "mem", "infl", "memory"),
        "Targets, thresholds and memory are about trials that are there; give --run RUN, or leave out",
    )
    from memfluence.engines.progress import duration
    from memfluence.training.planning import plan as make_plan

    with stdout_to_stderr():
        found = make_plan(dataset, **options)
    yield found
    say(f"{found['trials']} trials of {found['learner']} on {found['dataset']} ({found['n_train']} training examples)")
    if found["seconds"] is not None:
        per_trial = duration(found["seconds_per_trial"])
        say(f"  time    {duration(found['seconds'])} with {found['workers']} worker(s), {per_trial} a trial (pilot)")
    if found["cost"] is not None:
        say(f"  cost    {found['cost']:,.2f} for {found['worker_hours']:,.1f} hours of a worker")
    if found["decoded_bytes"] is not None:
        say(f"  images  {size(found['decoded_bytes'])} decoded; more than fits the device is decoded batch by batch")
    say(
        f"  disk    {size(found['disk_bytes'])} before compression",
        f"  memory  {size(found['memory_bytes_to_estimate'])} to estimate;"
        f" the full influence matrix would be {size(found['memory_bytes_full_matrix'])}",
    )
    if found["largest_stderr"] is not None:
        say(f"  error   standard error of a score at most about {found['largest_stderr']:.3f}")


def _refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """An option that would be ignored is an error."""
    options = {option.name: "/".join([*option.opts, *option.secondary_opts]) for option in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise InputError(f"{why} {', '.join(given)}.")


def _plan_more(path: str, targets: dict[str, Any], memory: str | None) -> Said:
    from memfluence.runs import open_run

    found = open_run(path, memory=memory).trials_needed(**targets)
    yield found
    thresholds = f"memorization >= {found['mem']:g} and influence >= {found['infl']:g}"
    shared = f" of {found['masks']} masks" if found["masks"] < found["trials"] else ""
    say(f"{found['trials']} trials{shared} so far; pairs with {thresholds}.")
    for what, limit in found["explained"].items():
        if limit is not None:
            say(
                f"  masks explain {limit['share']:.0%} +- {limit['stderr']:.0%} of the variance behind {what}: with one"
                " model a mask, no estimator that takes nothing about the learner for granted has Algorithm 1's error"
                f" with less than {limit['least_trials']:.0%} of its trials"
            )
    names = {"stderr": "standard error", "jaccard": "Jaccard index of two runs", "fdr": "share of pairs by chance"}
    for name, one in found["targets"].items():
        needs = "out of sight" if one["trials"] is None else f"{one['trials']:,} trials, {one['more']:,} more"
        say(f"  {names[name]} {one['target']:g} (now about {number(one['expected_now'])}): {needs}")
        if name == "stderr":
            median = one["trials_for"]["memorization_median"]
            say(
                f"    for the largest error; for the median of memorization {median or 0:,};"
                f" the paper's Lemma guarantees it after {one['lemma_design_trials']:,} trials of the design lemma"
            )
    say("Expected with more trials of this kind:")
    table(
        ("trials", "pairs", "by chance", "Jaccard", "Lemma"),
        (
            (
                one["trials"],
                f"{one['pairs']:.0f}",
                f"{one['by_chance']:.1f}",
                number(one["jaccard"], 2),
                number(one["lemma_design_stderr"]),
            )
            for one in found["predictions"]
        ),
    )
    say(
        "Lemma: the root mean squared error that the paper's Lemma guarantees for every pair after as many independent"
        + (
            " trials of the design lemma, which these are."
            if found["lemma_applies"]
            else " masks of the design lemma; these trials are of another design, for which it guarantees nothing."
        )
    )


def status(run: RunArgument) -> Said:
    """How far a run is: trials done, part-way and failed, accuracies, who did what, damaged files."""
    from memfluence.engines.progress import duration
    from memfluence.runs import open_run

    found = open_run(run).status()
    yield found
    what = "score   " if found["outcome"] == "score" else "accuracy"
    say(
        f"{run}: {found['learner'] or 'imported trials'} on {found['dataset']},"
        f" {found['n_train']} training and {found['n_test']} test examples",
        f"  trials    {found['trials']} of {found['trials_wanted']} in {found['segments']} segments,"
        f" {found['trials_failed']} failed",
        f"  {what}  {number(found['accuracy_in'])} on kept, {number(found['accuracy_out'])} on held-out,"
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
    from memfluence.engines.progress import duration

    return f"{duration(max(0.0, time.time() - when))} ago"
