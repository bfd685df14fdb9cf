"""The terminal: commands made from functions and their signatures, and results as people and programs see them.

A parameter that is annotated with its help, `mem: Annotated[float, "Least memorization."] = 0.25`, is an option of the
command. After the help may stand how the option is typed: its names and its metavar, "--out FILE", or the metavar
alone, "RUN", of an argument. A field of a dataclass in place of the help is an option like that field, and
`**options: Annotated[Any, RunOptions]` stands for all fields of the dataclass. Other parameters are for Python alone.

A command that is a generator yields its JSON document, and then says the same to people: --json prints the document
and ends the command there.
"""

import ast
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import Field, fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from inspect import Parameter
from keyword import iskeyword
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

import typer

from memfluence.errors import InputError, one_line
from memfluence.training.options import RunOptions, names, settings_of

if TYPE_CHECKING:
    from memfluence.runs import Run, Table

_NAMED = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`( parameter)?")


def as_options(message: str) -> str:
    """A message of the library in the words of the command line: `keep` is --keep, and `engine='ray'` --engine ray.

    Parameters are those of the command at work and of a run; what else stands in backticks is left as it is.
    """

    def option(found: "re.Match[str]") -> str:
        name, written, parameter = found.groups()
        flag = _at_work.get(name)
        if flag is None and name not in _OF:
            return found[0]
        flag = flag or _OF[name].metadata.get("flag") or f"--{name.replace('_', '-')}"
        return flag + _typed(flag, written) + (" option" if parameter else "")

    return _NAMED.sub(option, message)


def _typed(flag: str, written: str | None) -> str:
    """The value as it is typed after an option, from the value as Python writes it."""
    if written is None:
        return ""
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError):  # a word that stands for a value
        return f" {written}"
    if isinstance(value, bool):
        return ""
    if isinstance(value, dict):
        return " " + f" {flag} ".join(f"{key}={one}" for key, one in value.items())
    return " " + (",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


# ---- options that several commands share

_OF = {one.name: one for one in fields(RunOptions)}
_at_work: dict[str, str] = {}  # of the command that was called: the name of each option, by its parameter
RunArgument = Annotated[str, "Directory of a run, or its URI (s3://bucket/run).", "RUN"]
OpenedRun = Annotated["Run", *RunArgument.__metadata__]  # the run itself; --memory comes with it
SetOption = Annotated[dict[str, str] | None, _OF["settings"]]
DeviceOption = Annotated[str, _OF["device"]]
AddressOption = Annotated[str | None, _OF["address"]]
DatasetArgument = Annotated[str, _OF["dataset"].metadata["help"], "DATASET"]
DataOption = Annotated[str | None, "Where the data are, if the run does not say.", "--data --dataset"]
KeepOption = Annotated[float | None, "Which fraction, where the run has several."]
MemOption = Annotated[float, "Least memorization of the training example."]
InflOption = Annotated[float, "Least influence."]
MemoryOption = Annotated[
    str | None, "Most memory that estimates may take the process to, such as 2GB.", "--memory SIZE"
]
OutOption = Annotated[Path | None, "Write all rows to FILE.csv, .parquet or .npz.", "--out FILE"]
TestsOption = Annotated[str | None, "Test examples, such as 3,7,20-29.  [default: all]", "--test LIST"]
FinestOption = Annotated[
    str | None, "correct, score, margin or logit.  [default: the finest that the run records]", "--outcome"
]
AnyClass = Annotated[bool, "Pairs of different classes, too."]
JsonOption = Annotated[bool, "One JSON document on stdout, nothing else there."]
Said = Iterator[dict[str, Any]]  # of a command: its JSON document, and then it says the same to people

# How options of the library's own functions are typed, where it is not as their parameters are named.
_TYPED = {
    "any_class": "--same-class-only",
    "budget": "--budget TIME",
    "checkpoint_every": "--checkpoint-every SECONDS",
    "data": "--data PATH",
    "dataset": "--data --dataset",
    "linear": "--linear-set",
    "memory": "--memory SIZE",
    "name": "DATASET",
    "only": "--only LIST",
    "out": "--out DIR",
    "progress": "--quiet",
    "report": "--report FILE.md",
    "run": "--run RUN",
    "same_class": "--any-class",
    "second": "--second-learner",
    "second_run": "--second-run RUN",
    "settings": "--set",
    "train": "--no-train",
}


class Option(NamedTuple):
    """An option or argument as Typer takes it, and how the value is read from what was typed."""

    parameter: Parameter
    read: Callable[[Any], Any]


def options_of(
    source: Callable[..., Any], of_library: bool = False, helps: Mapping[str, str] = {}
) -> dict[str, Option]:
    """The options of a dataclass or of a function, by the names of its parameters; `helps` is for those without."""
    if is_dataclass(source):
        return {one.name: _of_field(one, one.default) for one in fields(source) if one.metadata.get("text")}
    found: dict[str, Option] = {}
    own = [*inspect.signature(source).parameters.values()]
    if any(one.annotation == OpenedRun for one in own):
        own.append(Parameter("memory", Parameter.KEYWORD_ONLY, default=None, annotation=MemoryOption))
    if inspect.isgeneratorfunction(source):
        own.append(Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption))
    for one in own:
        if one.name in helps and get_origin(one.annotation) is not Annotated:
            one = one.replace(annotation=Annotated[one.annotation, helps[one.name]])
        about, *more = one.annotation.__metadata__ if get_origin(one.annotation) is Annotated else [None]
        if one.kind is Parameter.VAR_KEYWORD:
            found = (options_of(about, True, *more) if about else {}) | found
        elif isinstance(about, Field):
            found[one.name] = _of_field(about, one.default)
        elif isinstance(about, str):
            found[one.name] = option_of(one, _TYPED.get(one.name) if of_library else None)
        elif about or one.annotation is typer.Context:
            found[one.name] = Option(one.replace(kind=Parameter.KEYWORD_ONLY), _as_typed)
    return found


def command_in(modules: Mapping[str, str], name: str) -> Any:
    """The command of a name, made from what has this name in its module; a class is one that makes itself."""
    found = getattr(import_module(f"memfluence.cli.{modules[name]}"), f"{name}_" if iskeyword(name) else name)
    return found() if isinstance(found, type) else command_of(name, found)


def command_of(
    name: str, function: Callable[..., Any], options: Mapping[str, Option] | None = None, help: str | None = None
) -> Any:
    """A command that calls a function with what was typed for its parameters, and for other `options`."""
    options = {**(options or {}), **options_of(function)}
    runs = [one.name for one in inspect.signature(function).parameters.values() if one.annotation == OpenedRun]

    def called(**given: Any) -> None:
        _at_work.clear()
        _at_work.update({one.name: one.opts[0] for one in command.params if one.opts[0].startswith("--")})
        read = {name: options[name].read(value) for name, value in given.items() if value is not None}
        values = {name: value for name, value in read.items() if value is not None}
        for name in runs:
            from memfluence.runs import open_run

            values[name] = open_run(values[name], memory=values.pop("memory", None))
        if values.get("progress"):
            from memfluence.engines.progress import Progress

            values["progress"] = Progress(words=as_options)
        if not inspect.isgeneratorfunction(function):
            function(**values)
            return
        as_document = values.pop("json")
        for document in function(**values):
            if as_document:
                as_json(document)
                return

    parameters = [one.parameter for one in options.values()]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command(name, help=help or inspect.getdoc(function))(called)
    command: Any = typer.main.get_command(made)
    return command


def _of_field(one: "Field[Any]", default: Any) -> Option:
    """An option like a dataclass's field. Where its default cannot be typed, the option has none."""
    typed = one.metadata
    default = False if typed["text"] is bool and typed["read"] else default if type(default) is typed["text"] else None
    help = typed["help"] + (f"  [default: {typed['shown']}]" if typed["shown"] else "")
    flags, shown = typed["flag"] or f"--{one.name.replace('_', '-')}", not typed["shown"] and default is not None
    usage = f"{flags} {typed['metavar'] or ''}"
    return Option(_parameter(one.name, typed["text"], help, usage, default, shown), typed["read"] or _as_typed)


def option_of(one: Parameter, usage: str | None = None) -> Option:
    """An option of a parameter with its help. Lists are typed with commas; what is on is turned off by its option."""
    kind, help, *typed_so = get_args(one.annotation)
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else [kind]
    kinds = [member for member in members if member is not NoneType]
    origins, default = [get_origin(member) for member in kinds], one.default
    usage = " ".join(typed_so) or usage or f"--{one.name.replace('_', '-')}"
    typed: Any = kinds[0] if len(kinds) == 1 and (kinds[0] in (int, float, Path) or origins == [list]) else str
    read: Callable[[Any], Any] = _as_typed
    if bool in kinds:
        typed, read, default = bool, (_off if default else _as_typed), False
    elif Sequence in origins:
        of = get_args(kinds[origins.index(Sequence)])[0]
        help += f"  [default: {','.join(f'{each:g}' for each in default)}]" if default else ""
        read, default, usage = partial(_listed, usage.split()[0], of), None, f"{usage} LIST"
    elif Mapping in origins:
        typed, read, usage = list[str], settings_of, f"{usage} NAME=VALUE"
    shown = default is not None and default is not Parameter.empty and typed is not bool
    return Option(_parameter(one.name, typed, help, usage, default, shown), read)


def _parameter(name: str, kind: Any, help: str, usage: str, default: Any, shown: bool) -> Parameter:
    flags = [word for word in usage.split() if word.startswith("--")]
    metavar = next((word for word in usage.split() if not word.startswith("--")), None)
    kind = kind | None if default is None else kind
    typed: Any = typer.Option if flags else typer.Argument
    declared = typed(*flags, metavar=metavar, help=as_options(help), show_default=shown)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared])


def _as_typed(value: Any) -> Any:
    return value


def _off(given: bool) -> bool:
    return not given


def _listed(flag: str, kind: Any, text: str) -> list[Any]:
    """'0.1,0.3' -> [0.1, 0.3]."""
    if kind not in (int, float):
        return list(names(text))
    what, such = ("integers", "5,10") if kind is int else ("numbers", "0.1,0.3")
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{flag} must be {what} with commas, such as {such}. Got {text!r} instead.") from None


def indices(text: str | None) -> list[int] | None:
    """'3,7,20-22' -> [3, 7, 20, 21, 22]."""
    if text is None:
        return None
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        found = []
    if not found:
        raise InputError(f"Test examples are given as indices and ranges, such as 3,7,20-29. Got {text!r} instead.")
    return found


class Commands(Mapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = tuple(names), cache(make)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


# ---- results

LABELS = {"label", "train_label", "test_label", "suggestion"}  # columns of tables


def as_json(document: Any) -> None:
    """One JSON document on stdout; what cannot be estimated is null. Rows that come one by one are written so."""
    sys.stdout.writelines(_pieces(document))
    sys.stdout.write("\n")


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for number, (key, one) in enumerate(value.items()):
            yield (", " if number else "") + _text(str(key)) + ": "
            yield from _pieces(one)
        yield "}"
    elif isinstance(value, Iterator):
        yield "["
        for number, one in enumerate(value):
            yield (", " if number else "") + _text(one)
        yield "]"
    else:
        yield _text(value)


def _text(value: Any) -> str:
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what code within the block prints, and what its child processes print, to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def say(*lines: str) -> None:
    for line in lines:
        print(one_line(as_options(line)) if line.strip() else line)


def say_where(file: Path | None, what: str = "All of them are", *, hint: bool = False) -> None:
    """Say in which file the rows are that are not shown; without one, with a hint of how to get them."""
    if file is not None or hint:
        say("All of them: --out FILE.csv or --json." if file is None else f"{what} in {file}.")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned with spaces, numbers to the right: readable, and easy to cut."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[k]) for row in cells)]) for k, title in enumerate(header)]
    for row in [list(header), *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())


def show(run: "Run", found: "Table", titles: Mapping[str, str], digits: int = 3) -> None:
    """Columns of a table about a run by name, under their titles; what cannot be estimated is a dash.

    Ids, where they are not the positions, stand before the columns of positions that are shown. Classes are called by
    their names.
    """
    from memfluence.runs.table import ID_OF

    shown = {}
    for name, title in titles.items():
        id = ID_OF.get(name, "")
        if id in found.columns and found[id].tolist() != found[name].tolist():
            shown[id] = "id" if title == "index" else f"{title} id"
        shown[name] = title
    names = dict(zip(run.classes.tolist(), run.class_names))

    def cell(column: str, value: Any) -> Any:
        if column in LABELS:
            value = names.get(value, value)  # a target is not the name of a class
        return number(value, digits) if isinstance(value, float) and column not in ID_OF.values() else value

    table(list(shown.values()), zip(*([cell(name, one) for one in found[name].tolist()] for name in shown)))


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
