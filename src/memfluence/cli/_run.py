"""`run` and `plan`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from memfluence.cli._options import (
    DatasetArgument,
    DesignOption,
    DeviceOption,
    JsonOption,
    KeepsOption,
    LearnerOption,
    RecordOption,
    SeedOption,
    SetOption,
    TrialsOption,
    fractions,
    names,
    settings,
)
from memfluence.cli._output import as_json, number, say, size, stdout_to_stderr
from memfluence.errors import TrialsFailedError

__all__ = ["plan", "run"]


def run(
    dataset: DatasetArgument,
    learner: LearnerOption = "mlp",
    trials: TrialsOption = None,
    keep: KeepsOption = None,
    design: DesignOption = "fixed",
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run.  [default: runs/DATASET-LEARNER]", show_default=False)
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="local or processes.  [default: by --workers]", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    device: DeviceOption = "auto",
    shard: Annotated[
        str | None, typer.Option(metavar="i/N", help="Run only this part of the groups.", show_default=False)
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
    from memfluence.engines import THREAD_VARIABLES

    for name in THREAD_VARIABLES:  # before torch is loaded, so that results have the same bits on every engine
        os.environ.setdefault(name, "1")
    from memfluence.progress import Progress
    from memfluence.running import parse_shard, prepare, run_trials
    from memfluence.runs import Run

    part = parse_shard(shard)
    campaign = prepare(
        dataset,
        learner=learner,
        settings=settings(set_),
        trials=trials,
        keep=fractions(keep),
        design=design,
        seed=seed,
        out=out,
        device=device,
        record=names(record),
    )
    progress = None if quiet else Progress()
    for note in campaign.dataset.notes:
        print(f"memfluence: note: {note}", file=sys.stderr)
    with stdout_to_stderr():  # what learners print is not our output
        store = run_trials(
            campaign,
            engine=engine,
            workers=workers,
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
            f"Next: memfluence report {shlex.quote(str(store.path))}",
        )
    if status["trials_failed"]:
        first = status["failures"][0]
        again = shlex.join(
            ["memfluence", *(word for word in sys.argv[1:] if word != "--retry-failed"), "--retry-failed"]
        )
        raise TrialsFailedError(
            f"{status['trials_failed']} trial(s) failed (trial {first['trial']}: {first['message']});"
            f" the others are stored. To retry just those: {again}"
        )


def plan(
    dataset: DatasetArgument,
    learner: LearnerOption = "mlp",
    trials: TrialsOption = None,
    keep: KeepsOption = None,
    design: DesignOption = "fixed",
    seed: SeedOption = 0,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    device: DeviceOption = "auto",
    set_: SetOption = None,
    record: RecordOption = "",
    pilot: Annotated[bool, typer.Option(help="Train a few models to learn how long one takes.")] = True,
    json: JsonOption = False,
) -> None:
    """Say how long a run will take, how much disk and memory, and how sure its scores will be."""
    from memfluence.planning import plan as make_plan
    from memfluence.progress import duration

    with stdout_to_stderr():
        found = make_plan(
            dataset,
            learner=learner,
            settings=settings(set_),
            trials=trials,
            keep=fractions(keep),
            design=design,
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
        f"  error   standard error of a score at most about {found['largest_stderr']:.3f}",
    )
