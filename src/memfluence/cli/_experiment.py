"""`experiment NAME`: the sub-application, and how its commands do an experiment and show its result.

The commands are in `_experiment_train` (experiments that train models) and `_experiment_look` (those that read runs).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memfluence.cli._options import settings
from memfluence.cli._output import as_json, number, say, stdout_to_stderr, table
from memfluence.errors import InputError

if TYPE_CHECKING:
    from memfluence.experiments import Result

__all__ = ["OutOption", "app", "conclude", "do", "integers", "numbers", "percent", "train"]

app = typer.Typer(
    help="The paper's experiments on your data and learner: each writes NAME.json, .parquet, .png and .svg.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where results go.  [default: RUN/experiments/NAME]", show_default=False),
]


def do(name: str, runs: Sequence[str], out: Path | None, **options: Any) -> "tuple[Result, Path]":
    """Do an experiment; gives its result and where it was saved."""
    from memfluence.experiments.doing import directory_of, experiment
    from memfluence.runs import open_run

    opened = [open_run(run) for run in runs]
    with stdout_to_stderr():  # what learners print is not our output
        return experiment(name, *opened, out=out, **options), directory_of(name, opened, out)


def train(name: str, runs: Sequence[str], out: Path | None, quiet: bool, set_: list[str] | None, **options: Any) -> Any:
    """`do`, for an experiment that trains models."""
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    return do(name, runs, out, progress=not quiet, settings=settings(set_) or None, **options)


def conclude(
    done: "tuple[Result, Path]", json: bool, header: Sequence[str], rows: Iterable[Sequence[object]], *lines: str
) -> None:
    """Show a result: its JSON, or its title, a table, lines, and where the files are."""
    result, where = done
    if json:
        as_json(result.to_json())
        return
    say(result.title)
    table(header, rows)
    say(*lines, f"{where / result.name}.json, .parquet, .png and .svg")


def numbers(text: str, what: str) -> list[float]:
    """'0.1,0.3' -> [0.1, 0.3]."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{what} must be numbers with commas, such as 0.1,0.3. Got {text!r} instead.") from None


def integers(text: str, what: str) -> list[int]:
    """'5,10' -> [5, 10]."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{what} must be integers with commas, such as 5,10. Got {text!r} instead.") from None


def percent(found: dict[str, Any]) -> str:
    """'76.06 ± 0.28', a mean and its standard deviation in percent."""
    return f"{number(100 * found['mean'], 2)} ± {number(100 * found['sd'], 2)}"
