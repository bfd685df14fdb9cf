"""`import`, `export` and `compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memfluence.cli._terminal import (
    DatasetOption,
    InflOption,
    JsonOption,
    KeepOption,
    MemOption,
    MemoryOption,
    RunArgument,
    as_json,
    number,
    say,
)
from memfluence.errors import InputError


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Trials files (.npz), or folders of the authors' release.", show_default=False
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="RUN", help="Directory or URI of a run: new, or one to join.", show_default=False
        ),
    ],
    dataset: DatasetOption = None,
    json: JsonOption = False,
) -> None:
    """Make a run of trials that were made elsewhere, or join them to a run."""
    from memfluence.exchange import import_trials

    done = import_trials(files, out, dataset=dataset)
    total = len(done.store.scan().numbers)
    if json:
        as_json({"run": str(out), "added": done.added, "already_there": done.already_there, "trials": total})
    else:
        say(f"{done.added} trials added to {out}, {done.already_there} were there already; it has {total} now.")


def export(
    run: RunArgument,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .npz file to write; a folder for huggingface.", show_default=False),
    ],
    format: Annotated[
        str,
        typer.Option(
            help="published (the authors' layout), cleanlab (.csv, .parquet: held-out probabilities), fiftyone (.json)"
            " or huggingface (a folder with the data and their scores)."
        ),
    ] = "published",
    trials: Annotated[bool, typer.Option("--trials", help="The trials themselves, for 'memfluence import'.")] = False,
    pairs: Annotated[bool, typer.Option("--pairs", help="The high-influence pairs, in the published layout.")] = False,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    dataset: DatasetOption = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Write what others read: the authors' published layout (or pairs, or the trials), or other tools' formats.

    Tables of scores as CSV, Parquet or NPZ are what 'memfluence scores --out' writes.
    """
    from memfluence.exchange import TOOLS, export_for, export_published, export_trials
    from memfluence.runs import open_run

    if trials and pairs:
        raise InputError("Choose one of --trials and --pairs; each writes a file of its own.")
    if format != "published" and (trials or pairs):
        raise InputError(f"--{'trials' if trials else 'pairs'} has a format of its own; leave out --format {format}.")
    if format not in ("published", *TOOLS):
        raise InputError(f"There is no format {format!r}; choose one of published, {', '.join(TOOLS)}.")
    opened = open_run(run, memory=memory)
    if trials:
        export_trials(opened, file)
    elif format != "published":
        export_for(opened, file, format, dataset=dataset, keep=keep)
    else:
        export_published(opened, file, pairs=pairs, mem=mem, infl=infl, keep=keep)
    if json:
        parts = [part for part in file.rglob("*") if part.is_file()] if file.is_dir() else [file]
        as_json({"file": str(file), "bytes": sum(part.stat().st_size for part in parts)})
    else:
        say(f"Wrote {file}.")


def compare(
    first: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, a published .npz, or a table of scores or pairs.", show_default=False
        ),
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="Another run or file.", show_default=False)
    ] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where figures and tables go; none without it.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare two results (memorization, pairs, which published pairs are found), or summarize one."""
    from memfluence.exchange import compared

    if out is not None and second is None:
        raise InputError("There is a figure of two results only; give another run or file to compare with.")
    found = compared(first, second, mem=mem, infl=infl, keep=keep, memory=memory)
    if out is not None:
        from memfluence.exchange import save_comparison

        written = save_comparison(found, out)
    if json:
        as_json(found.document)
        return
    for part, value in found.document.items():
        if part == "curves":
            continue  # for figures and programs
        if isinstance(value, dict):
            say(f"{part.replace('_', ' ')}:")
            for name, one in value.items():
                if not isinstance(one, list):
                    say(f"  {name.replace('_', ' ')}: {_shown(one)}")
        else:
            say(f"{part}: {_shown(value)}")
    if out is not None:
        say(*(f"Wrote {path}" for path in written))


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else "-" if value is None else str(value)
