"""`import`, `export` and `compare`."""

from pathlib import Path
from typing import Annotated, Any

from memfluence.cli._terminal import (
    AnyClass,
    InflOption,
    KeepOption,
    MemOption,
    MemoryOption,
    OpenedRun,
    Said,
    number,
    say,
)
from memfluence.errors import InputError
from memfluence.wording import error

DatasetOption = Annotated[str | None, "Where the data are, if the run does not say."]


def import_(
    files: Annotated[list[Path], "Trials files (.npz), or folders of the authors' release.", "FILE..."],
    out: Annotated[str, "Directory or URI of a run: new, or one to join.", "--out RUN"],
    dataset: DatasetOption = None,
) -> Said:
    """Make a run of trials that were made elsewhere, or join them to a run."""
    from memfluence.exchange import import_trials

    done = import_trials(files, out, dataset=dataset)
    total = len(done.store.scan().numbers)
    yield {"run": out, "added": done.added, "already_there": done.already_there, "trials": total}
    say(f"{done.added} trials added to {out}, {done.already_there} were there already; it has {total} now.")


def export(
    run: OpenedRun,
    file: Annotated[Path, "A .npz file to write; a folder for huggingface.", "FILE"],
    format: Annotated[
        str,
        "published (the authors' layout), cleanlab (.csv, .parquet: held-out probabilities), fiftyone (.json)"
        " or huggingface (a folder with the data and their scores).",
    ] = "published",
    trials: Annotated[bool, "The trials themselves, for 'memfluence import'."] = False,
    pairs: Annotated[bool, "The high-influence pairs, in the published layout."] = False,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    dataset: DatasetOption = None,
    keep: KeepOption = None,
) -> Said:
    """Write what others read: the authors' published layout (or pairs, or the trials), or other tools' formats.

    Tables of scores as CSV, Parquet or NPZ are what 'memfluence scores --out' writes.
    """
    from memfluence.exchange import TOOLS, export_for, export_published, export_trials

    if trials and pairs:
        raise InputError("Choose one of --trials and --pairs; each writes a file of its own.")
    if format != "published" and (trials or pairs):
        raise InputError(f"--{'trials' if trials else 'pairs'} has a format of its own; leave out --format {format}.")
    if format not in ("published", *TOOLS):
        raise InputError(f"There is no format {format!r}; choose one of published, {', '.join(TOOLS)}.")
    if trials:
        export_trials(run, file)
    elif format != "published":
        export_for(run, file, format, dataset=dataset, keep=keep)
    else:
        export_published(run, file, pairs=pairs, mem=mem, infl=infl, keep=keep)
    parts = [part for part in file.rglob("*") if part.is_file()] if file.is_dir() else [file]
    yield {"file": str(file), "bytes": sum(part.stat().st_size for part in parts)}
    say(f"Wrote {file}.")


def compare(
    first: Annotated[str, "A run, a published .npz, or a table of scores or pairs.", "RUN"],
    second: Annotated[str | None, "Another run or file.", "[OTHER]"] = None,
    mem: MemOption = 0.25,
    infl: InflOption = 0.15,
    any_class: AnyClass = False,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    out: Annotated[Path | None, "Where figures and tables go; none without it.", "--out DIR"] = None,
) -> Said:
    """Compare two results (memorization, pairs, published pairs or C-scores), or summarize one."""
    from memfluence.exchange import compared, save_comparison

    if out is not None and second is None:
        raise InputError("There is a figure of two results only; give another run or file to compare with.")
    found = compared(first, second, mem=mem, infl=infl, same_class=not any_class, keep=keep, memory=memory)
    written = save_comparison(found, out) if out is not None else ()
    yield found.document
    for part, value in found.document.items():
        if part == "curves":
            continue  # for figures and programs
        if isinstance(value, dict):
            say(f"{part.replace('_', ' ')}:")
            for name, one in value.items():
                if not isinstance(one, list) and not name.endswith("_stderr"):
                    spread = value.get(f"{name}_stderr")
                    text = _shown(one) if spread is None else f"{_shown(one)} ± {error(spread)}"
                    say(f"  {name.replace('_', ' ')}: {text}")
        else:
            say(f"{part.replace('_', ' ')}: {_shown(value)}")
    say(*(f"Wrote {path}" for path in written))


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else "-" if value is None else str(value)
