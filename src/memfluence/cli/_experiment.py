"""`experiment NAME` and `reproduce`: commands made from the signatures of what they call.

Modules of experiments are imported when one of their commands is asked for.
"""

import inspect
from collections.abc import Sequence
from functools import partial
from inspect import Parameter
from typing import Annotated, Any

from typer.core import TyperGroup

from memfluence.cli._run import kept_apart
from memfluence.cli._terminal import (
    Commands,
    RunArgument,
    Said,
    command_of,
    option_of,
    options_of,
    say,
    stdout_to_stderr,
    table,
)
from memfluence.experiments import EXPERIMENTS, HELP, named
from memfluence.experiments.reproduce import reproduce as redo

_OTHERS = Annotated[list[str] | None, "Other runs of the same data.", "[OTHER...]"]


class experiment(TyperGroup):
    """`experiment`, and a command for each of them."""

    def __init__(self) -> None:
        super().__init__(
            name="experiment",
            commands=Commands(EXPERIMENTS, _command),  # type: ignore[arg-type]
            help="The paper's experiments on your data and learner: each writes NAME.json, .parquet, .png and .svg.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )

    def format_commands(self, context: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(EXPERIMENTS.items()))


def _command(name: str) -> Any:
    """The command of an experiment: its runs, and the options of its functions."""
    from memfluence.experiments import doing

    module = named(name)
    steps = [getattr(module, step) for step in ("plan", "summarize", "conduct") if hasattr(module, step)]
    taken = {parameter for step in steps for parameter in inspect.signature(step).parameters}
    run = Parameter("run", Parameter.KEYWORD_ONLY, annotation=RunArgument)
    others = Parameter("others", Parameter.KEYWORD_ONLY, default=None, annotation=_OTHERS)
    options = {one.name: option_of(one) for one in (run, others) if one.name in taken}
    for step in (*steps, doing.experiment):
        for key, one in options_of(step, of_library=True, helps=HELP).items():
            options.setdefault(key, one)
    if hasattr(module, "plan"):
        options |= options_of(doing.Training)
    if "run" not in taken:
        options.pop("dataset", None)  # it makes its own
    return command_of(name, partial(_do, name), options, help=str(module.__doc__).partition("\n\n")[0])


def _do(name: str, run: str | None = None, others: Sequence[str] = (), **options: Any) -> Said:
    """Do an experiment, and show its JSON, or its title, a table, lines, and where the files are."""
    if "train" in options:
        from memfluence.engines import one_thread_from_the_start

        one_thread_from_the_start()
        options = kept_apart(options)
    from memfluence.experiments import doing
    from memfluence.runs import open_run

    opened = [open_run(one) for one in (run, *others) if one is not None]
    with stdout_to_stderr():  # what learners print is not our output
        result = doing.experiment(name, *opened, **options)
    yield result.to_json()
    said = named(name).say(result)
    say(result.title)
    table(said.header, said.rows)
    say(*said.lines, f"{doing.directory_of(name, opened, options.get('out')) / name}.json, .parquet, .png and .svg")


def reproduce(**options: Annotated[Any, redo, HELP]) -> Said:
    """The paper's experiments on a dataset in the time given, and the paper's numbers beside ours.

    Stopped or out of time, it goes on with the same command; --budget is the time of one call. Writes reproduction.md,
    reproduction.json and figures.
    """
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    from memfluence.experiments.reproduce._report import difference_in_words, sides_in_words

    with stdout_to_stderr():
        found = redo(**options)
    yield found
    rows = [row for row in found["numbers"] if row["ours"] is not None]
    table(
        ("", "paper", "ours", "n", "difference"),
        ((row["what"], *sides_in_words(row), row["ours"]["n"] or "", difference_in_words(row)) for row in rows),
    )
    say(*(f"{part}: {why}" for part, why in found["missing"].items()), found["report"])
