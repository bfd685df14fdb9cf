"""`reproduce`: all of the paper's experiments on one dataset, and one report."""

from pathlib import Path
from typing import Annotated

import typer

from memfluence.cli._options import DeviceOption, InflOption, JsonOption, MemOption, SeedOption, SetOption, settings
from memfluence.cli._output import as_json, say, stdout_to_stderr, table

__all__ = ["reproduce"]


def reproduce(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="digits, mnist or cifar100.", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Directory of the dataset's files, or FILE.npz.", show_default=False),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of this call: 90s, 30m, 2h; 0: no training.  [default: 30m; digits 14m]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where everything goes.  [default: runs/reproduce-DATASET]", show_default=False
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Trials that are there already.", show_default=False)
    ] = None,
    second_run: Annotated[
        str | None,
        typer.Option("--second-run", metavar="RUN", help="The same of another network.", show_default=False),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Parts, with numbers of models if you like, as removal,utility=30: removal (repeats), utility"
            " (repeats), last-layer (linear models), second (trials of another network), long-tail, histogram,"
            " consistency, architectures, thresholds, examples, pairs.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="How many to begin with.  [default: by the time]", show_default=False),
    ] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    learner: Annotated[str | None, typer.Option(help="Another one than the usual.", show_default=False)] = None,
    set_: SetOption = None,
    second: Annotated[
        str | None, typer.Option("--second-learner", help="Another network to compare with.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 1,
    seed: SeedOption = 0,
    no_train: Annotated[bool, typer.Option("--no-train", help="Read what is there.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Where the report goes; figures in a directory beside it.  [default: DIR/reproduction.md]",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: JsonOption = False,
) -> None:
    """The paper's experiments on digits, MNIST or CIFAR-100 in the time given, and its numbers beside ours.

    Stopped or out of time, it goes on with the same command; --budget is the time of one call. Writes reproduction.md,
    reproduction.json and figures.
    """
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    from memfluence.experiments.reproduce import reproduce as redo
    from memfluence.experiments.reproduce import sides_in_words

    with stdout_to_stderr():
        found = redo(
            dataset,
            data,
            budget=budget,
            out=out,
            run=run,
            second_run=second_run,
            only=only,
            trials=trials,
            mem=mem,
            infl=infl,
            learner=learner,
            settings=settings(set_) or None,
            second=second,
            device=device,
            workers=workers,
            seed=seed,
            train=not no_train,
            report=report,
            progress=not quiet,
        )
    if json:
        as_json(found)
        return
    table(
        ("", "paper", "ours", "n"),
        (
            (row["what"], *sides_in_words(row), row["ours"]["n"] or "")
            for row in found["numbers"]
            if row["ours"] is not None
        ),
    )
    say(*(f"{part}: {why}" for part, why in found["missing"].items()), found["report"])
