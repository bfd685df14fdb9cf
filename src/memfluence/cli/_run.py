"""`run` and `plan`."""

import shlex
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from memfluence.cli._options import (
    AddressOption,
    DatasetArgument,
    DesignOption,
    DeviceOption,
    GpusOption,
    GroupsOption,
    InflOption,
    JsonOption,
    KeepsOption,
    LearnerOption,
    MemOption,
    MemoryOption,
    RecordOption,
    SeedOption,
    SetOption,
    TrialsOption,
    fractions,
    names,
    settings,
)
from memfluence.cli._output import as_json, number, say, size, stdout_to_stderr, table
from memfluence.errors import InputError, TrialsFailedError, one_line

__all__ = ["plan", "run"]

_OF_A_NEW_RUN = ("learner", "trials", "design", "groups", "seed", "workers", "device", "set_", "record", "pilot")


def run(
    dataset: DatasetArgument,
    learner: LearnerOption = "mlp",
    trials: TrialsOption = None,
    keep: KeepsOption = None,
    design: DesignOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="RUN",
            help="Directory of the run, or a URI such as s3://bucket/run.  [default: runs/DATASET-LEARNER]",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="local, processes or ray.  [default: by --workers]", show_default=False)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes, or tasks on the cluster at a time.  [default: 1; ray: as the cluster has room]",
            show_default=False,
        ),
    ] = None,
    address: AddressOption = None,
    gpus_per_worker: GpusOption = None,
    device: DeviceOption = "auto",
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="i/N|auto",
            help="Run only this part of the groups; auto: as the job array's variables say.",
            show_default=False,
        ),
    ] = None,
    set_: SetOption = None,
    record: RecordOption = "",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run just the trials that failed.")] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Keep a long trial's state so often, to go on within it; at Ctrl-C as well. 0: never.",
        ),
    ] = 60,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: JsonOption = False,
) -> None:
    """Train many models on random subsets of DATASET; the same command again goes on where it stopped."""
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    from memfluence.progress import Progress
    from memfluence.runs import Run
    from memfluence.training.campaign import prepare, run_trials
    from memfluence.training.sharding import parse_shard

    part = parse_shard(shard)
    campaign = prepare(
        dataset,
        learner=learner,
        settings=settings(set_),
        trials=trials,
        keep=fractions(keep),
        design=design,
        groups=groups,
        seed=seed,
        out=out,
        device=device,
        record=names(record),
        engine=engine,
        gpus_per_worker=gpus_per_worker,
    )
    progress = None if quiet else Progress()
    for note in campaign.dataset.notes:
        print(f"memfluence: note: {one_line(note)}", file=sys.stderr)
    with stdout_to_stderr():  # what learners print is not our output
        store = run_trials(
            campaign,
            engine=engine,
            workers=workers,
            address=address,
            gpus_per_worker=gpus_per_worker,
            shard=part,
            retry_failed=retry_failed,
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
    status = Run(store).status()
    if json:
        as_json(status)
    else:
        say(
            f"{status['trials']} of {status['trials_wanted']} trials in {store.path}:"
            f" test accuracy {number(status['test_accuracy'])},"
            f" on kept examples {number(status['accuracy_in'])}, on held-out ones {number(status['accuracy_out'])}.",
        )
        if status["trials"]:
            say(f"Next: memfluence report {shlex.quote(str(store.path))}")
    if status["trials_failed"]:
        first = status["failures"][0]
        again = shlex.join(
            ["memfluence", *(word for word in sys.argv[1:] if word != "--retry-failed"), "--retry-failed"]
        )
        what = f"{status['trials_failed']} trial(s) failed (trial {first['trial']}: {first['message']})"
        raise TrialsFailedError(
            f"{what}; the others are stored. To retry just those: {again}"
            if status["trials"]
            else f"{what}, and none succeeded: mend the learner or the data (docs/your-own-model.md), then: {again}"
        )


def plan(
    context: typer.Context,
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="As for run; or --run RUN.", show_default=False)
    ] = None,
    learner: LearnerOption = "mlp",
    trials: TrialsOption = None,
    keep: KeepsOption = None,
    design: DesignOption = None,
    groups: GroupsOption = None,
    seed: SeedOption = 0,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    device: DeviceOption = "auto",
    set_: SetOption = None,
    record: RecordOption = "",
    pilot: Annotated[bool, typer.Option(help="Train a few models to learn how long one takes.")] = True,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Plan more trials of this run, from those it has.", show_default=False
        ),
    ] = None,
    stderr: Annotated[float | None, typer.Option(help="With --run: target standard error.", show_default=False)] = None,
    jaccard: Annotated[
        float | None,
        typer.Option(help="With --run: target Jaccard index of the pairs of two runs.", show_default=False),
    ] = None,
    fdr: Annotated[
        float | None, typer.Option(help="With --run: target share of pairs by chance.", show_default=False)
    ] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Say how long a run will take, how much disk and memory, and how sure its scores will be.

    With --run instead of DATASET: how many more trials a target takes, from the trials so far.
    """
    if (dataset is None) == (run is None):
        raise InputError("Give a DATASET to plan a new run, or --run RUN to plan more trials of a run.")
    targets = {"stderr": stderr, "jaccard": jaccard, "fdr": fdr}
    if run is not None:
        _refuse(context, _OF_A_NEW_RUN, "What is planned with --run RUN is more trials of its own kind; leave out")
        chosen = fractions(keep) or []
        if len(chosen) > 1:
            raise InputError("With --run, --keep chooses one fraction of the run's; give one.")
        _plan_more(run, {**targets, "mem": mem, "infl": infl, "keep": chosen[0] if chosen else None}, memory, json)
        return
    _refuse(
        context,
        (*targets, "mem", "infl", "memory"),
        "Targets, thresholds and memory are about trials that are there; give --run RUN, or leave out",
    )
    from memfluence.progress import duration
    from memfluence.training.planning import plan as make_plan

    with stdout_to_stderr():
        found = make_plan(
            dataset,
            learner=learner,
            settings=settings(set_),
            trials=trials,
            keep=fractions(keep),
            design=design,
            groups=groups,
            seed=seed,
            workers=workers,
            device=device,
            record=names(record),
            pilot=pilot,
        )
    if json:
        as_json(found)
        return
    say(f"{found['trials']} trials of {found['learner']} on {found['dataset']} ({found['n_train']} training examples)")
    if found["seconds"] is not None:
        per_trial = duration(found["seconds_per_trial"])
        say(f"  time    {duration(found['seconds'])} with {workers} worker(s), {per_trial} a trial (pilot)")
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


def _plan_more(path: str, targets: dict[str, Any], memory: str | None, json: bool) -> None:
    from memfluence.runs import open_run

    found = open_run(path, memory=memory).trials_needed(**targets)
    if json:
        as_json(found)
        return
    thresholds = f"memorization >= {found['mem']:g} and influence >= {found['infl']:g}"
    shared = f" of {found['masks']} masks" if found["masks"] < found["trials"] else ""
    say(f"{found['trials']} trials{shared} so far; pairs with {thresholds}.")
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
