"""`experiment NAME` and `reproduce`: commands made from the signatures of what they call.

A parameter that is annotated with its help, `mem: Annotated[float, "Least memorization."] = 0.25`, is an option of the
command, and so is one whose help is in `experiments.HELP`; any other is for Python alone. Lists are typed with commas.
A switch that is on is turned off by its option. Modules of experiments are imported when one of their commands is asked
for.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperGroup

from memfluence.cli._terminal import (
    Commands,
    JsonOption,
    RunArgument,
    as_json,
    command_of,
    parameter,
    read,
    say,
    stdout_to_stderr,
    table,
    typed_fields,
)
from memfluence.errors import InputError
from memfluence.experiments import EXPERIMENTS, HELP, named
from memfluence.experiments.reproduce import reproduce as redo
from memfluence.training.options import names, settings_of

FLAGS = {  # of parameters whose option has another name
    "any_class": ("--same-class-only",),
    "dataset": ("--data", "--dataset"),
    "linear": ("--linear-set",),
    "progress": ("--quiet",),
    "same_class": ("--any-class",),
    "second": ("--second-learner",),
    "settings": ("--set",),
    "train": ("--no-train",),
}
METAVARS = {"budget": "TIME", "checkpoint_every": "SECONDS", "data": "PATH", "memory": "SIZE", "only": "LIST"}
METAVARS |= {"name": "DATASET", "out": "DIR", "report": "FILE.md", "run": "RUN", "second_run": "RUN"}
OthersArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[OTHER...]", help="Other runs of the same data.", show_default=False)
]
Read = Callable[[Any], Any]


class Experiments(TyperGroup):
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
    from memfluence.experiments.doing import Training, experiment

    module = named(name)
    steps = [getattr(module, step) for step in ("plan", "summarize", "conduct") if hasattr(module, step)]
    taken = {parameter for step in steps for parameter in inspect.signature(step).parameters}
    arguments = [Parameter("run", Parameter.KEYWORD_ONLY, annotation=RunArgument)] if "run" in taken else []
    if "others" in taken:
        arguments.append(Parameter("others", Parameter.KEYWORD_ONLY, default=None, annotation=OthersArgument))
    options = _options(*steps, experiment)
    if hasattr(module, "plan"):
        options |= {one.name: (parameter(one), partial(read, one)) for one in typed_fields(Training)}
    if "run" not in taken:
        options.pop("dataset", None)  # it makes its own
    call = _like(partial(_do, name), arguments, options)
    return command_of(name, call, help=str(module.__doc__).partition("\n\n")[0])


def _do(name: str, json: bool, run: str | None = None, others: Sequence[str] | None = None, **options: Any) -> None:
    """Do an experiment, and show its JSON, or its title, a table, lines, and where the files are."""
    if "train" in options:
        from memfluence.engines import one_thread_from_the_start

        one_thread_from_the_start()
    from memfluence.experiments.doing import directory_of, experiment
    from memfluence.runs import open_run

    opened = [open_run(one) for one in (run, *(others or ())) if one is not None]
    with stdout_to_stderr():  # what learners print is not our output
        result = experiment(name, *opened, **options)
    if json:
        as_json(result.to_json())
        return
    said = named(name).say(result)
    say(result.title)
    table(said.header, said.rows)
    say(*said.lines, f"{directory_of(name, opened, options['out']) / name}.json, .parquet, .png and .svg")


def _reproduce(json: bool, **options: Any) -> None:
    from memfluence.engines import one_thread_from_the_start

    one_thread_from_the_start()
    from memfluence.experiments.reproduce._table import sides_in_words

    with stdout_to_stderr():
        found = redo(**options)
    if json:
        as_json(found)
        return
    rows = [row for row in found["numbers"] if row["ours"] is not None]
    table(("", "paper", "ours", "n"), ((row["what"], *sides_in_words(row), row["ours"]["n"] or "") for row in rows))
    say(*(f"{part}: {why}" for part, why in found["missing"].items()), found["report"])


def _options(*functions: Callable[..., Any]) -> "dict[str, tuple[Parameter, Read]]":
    """The parameters of functions that are options of a command, as Typer reads them, and how their texts are read."""
    found: dict[str, tuple[Parameter, Read]] = {}
    for one in (one for function in functions for one in inspect.signature(function).parameters.values()):
        annotated = get_origin(one.annotation) is Annotated
        if (annotated or one.name in HELP) and one.name not in found:
            kind, help = get_args(one.annotation) if annotated else (one.annotation, HELP[one.name])
            found[one.name] = _option(one.name, kind, help, one.default)
    return found


def _option(name: str, kind: Any, help: str, default: Any) -> tuple[Parameter, Read]:
    flags, metavar = FLAGS.get(name, (f"--{name.replace('_', '-')}",)), METAVARS.get(name)
    if default is Parameter.empty:
        argument = Annotated[str, typer.Argument(metavar=metavar, help=help, show_default=False)]
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=argument), _as_typed
    members = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    many = next((one for one in (kind, *members) if get_origin(one) is Sequence), None)
    typed: Any = str
    read: Read = _as_typed
    if bool in members:
        typed, read, default = bool, (_off if default else _as_typed), False
    elif many is not None:
        metavar, read = "LIST", partial(_listed, flags[0], get_args(many)[0])
        help += "" if default is None else f"  [default: {','.join(f'{one:g}' for one in default)}]"
        default = None
    elif any(get_origin(one) is Mapping for one in (kind, *members)):
        metavar, typed, read = "NAME=VALUE", list[str], _settings
    elif members in ([int], [float]):
        typed = members[0]
    shown = default is not None and typed is not bool
    declared = typer.Option(*flags, metavar=metavar, help=help, show_default=shown)
    annotation: Any = Annotated[typed | None if default is None else typed, declared]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation), read


def _as_typed(value: Any) -> Any:
    return value


def _off(given: bool) -> bool:
    return not given


def _settings(pairs: list[str] | None) -> dict[str, str] | None:
    return settings_of(pairs) or None


def _listed(flag: str, kind: Any, text: str) -> list[Any]:
    """'0.1,0.3' -> [0.1, 0.3]."""
    if kind not in (int, float):
        return list(names(text))
    what, such = ("integers", "5,10") if kind is int else ("numbers", "0.1,0.3")
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{flag} must be {what} with commas, such as {such}. Got {text!r} instead.") from None


def _like(
    call: Callable[..., None], arguments: list[Parameter], options: "dict[str, tuple[Parameter, Read]]"
) -> Callable[..., None]:
    """A function with the signature of these arguments, these options and --json, which Typer makes a command of."""
    json = Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    parameters = [*arguments, *(one for one, _ in options.values()), json]
    lists = {
        name for name, (_, reading) in options.items() if isinstance(reading, partial)
    }  # not given, they are left out

    def command(**given: Any) -> None:
        values = {name: value for name, value in given.items() if value is not None or name not in lists}
        call(**{name: options[name][1](value) if name in options else value for name, value in values.items()})

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


reproduce = _like(_reproduce, [], _options(redo))
reproduce.__doc__ = """The paper's experiments on a dataset in the time given, and the paper's numbers beside ours.

Stopped or out of time, it goes on with the same command; --budget is the time of one call. Writes reproduction.md,
reproduction.json and figures.
"""
