"""The terminal: options and arguments that several commands share, and results as people and programs see them."""

import ast
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import Field, fields
from functools import cache, wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memfluence.errors import InputError, one_line
from memfluence.training.options import RunOptions

if TYPE_CHECKING:
    from memfluence.runs import Table

_NAMED = re.compile(r"`([a-z][a-z_]*)(?:=([^`]+))?`( parameter)?")


def as_options(message: str, flags: Mapping[str, str] = {}) -> str:
    """A message of the library in the words of the command line: `keep` is --keep, and `engine='ray'` --engine ray.

    `flags` holds the names of options that are not those of the parameters.
    """

    def option(found: "re.Match[str]") -> str:
        name, written, parameter = found.groups()
        flag = flags.get(name, f"--{name.replace('_', '-')}")
        return flag + _typed(flag, written) + (" option" if parameter else "")

    return _NAMED.sub(option, message)


def _typed(flag: str, written: str | None) -> str:
    """What follows an option for a value as Python writes it."""
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


def declared(one: "Field[Any]") -> Any:
    """A field as Typer declares an option."""
    typed = one.metadata
    shown = f"  [default: {typed['shown']}]" if typed["shown"] else ""
    return typer.Option(
        *(typed["flag"] or f"--{one.name.replace('_', '-')}").split(),
        metavar=typed["metavar"],
        help=as_options(typed["help"] + shown),
        show_default=not typed["shown"] and _default(one) is not None,
    )


def _default(one: "Field[Any]") -> Any:
    """What stands for an option that is not given: None where the field's own default cannot be typed."""
    typed = one.metadata["text"]
    if typed is bool and one.metadata["read"]:
        return False
    return one.default if type(one.default) is typed else None


RunArgument = Annotated[  # text: a Path would make s3:/bucket of s3://bucket
    str, typer.Argument(metavar="RUN", help="Directory of a run, or its URI (s3://bucket/run).", show_default=False)
]
_OF = {one.name: one for one in fields(RunOptions)}
DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help=_OF["dataset"].metadata["help"], show_default=False)
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", "--dataset", help="Where the data are, if the run does not say.", show_default=False),
]
DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Where the data are, if the run does not say.", show_default=False)
]
SetOption = Annotated[list[str] | None, declared(_OF["settings"])]
SeedOption = Annotated[int, declared(_OF["seed"])]
DeviceOption = Annotated[str, declared(_OF["device"])]
AddressOption = Annotated[str | None, declared(_OF["address"])]
KeepOption = Annotated[
    float | None, typer.Option(help="Which fraction, where the run has several.", show_default=False)
]
MemOption = Annotated[float, typer.Option(help="Least memorization of the training example.")]
InflOption = Annotated[float, typer.Option(help="Least influence.")]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Most memory that estimates may take the process to, such as 2GB.",
        show_default=False,
    ),
]
TableOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write all rows to FILE.csv, .parquet or .npz.", show_default=False),
]
TestsOption = Annotated[
    str | None,
    typer.Option(
        "--test", metavar="LIST", help="Test examples, such as 3,7,20-29.  [default: all]", show_default=False
    ),
]
FinestOption = Annotated[
    str | None,
    typer.Option(
        "--outcome", help="correct, margin or logit.  [default: the finest that the run records]", show_default=False
    ),
]
AnyClass = Annotated[bool, typer.Option("--any-class", help="Pairs of different classes, too.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")]


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


def with_options(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a dataclass's fields before its own. It gets what was given of them, by field."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command).parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        chosen = typed_fields(options)
        parameters = [*map(parameter, chosen), *(one.replace(kind=Parameter.KEYWORD_ONLY) for one in own)]

        @wraps(command)
        def called(**given: Any) -> None:
            values = {one.name: read(one, given.pop(one.name)) for one in chosen}
            command(**given, **{name: value for name, value in values.items() if value is not None})

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


def typed_fields(options: type) -> "list[Field[Any]]":
    """The fields that a command line can fill."""
    return [one for one in fields(options) if one.metadata.get("text")]


def parameter(one: "Field[Any]") -> Parameter:
    """A field as a parameter that Typer understands."""
    typed, default = one.metadata["text"], _default(one)
    kind = typed if default is not None else typed | None
    return Parameter(one.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared(one)])


def read(one: "Field[Any]", typed: Any) -> Any:
    """The value of what was typed for a field; None if nothing was."""
    return one.metadata["read"](typed) if one.metadata["read"] and typed is not None else typed


# Line breaks, escape sequences and overrides of the direction: a name must not move the cursor or turn a row around.
OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")


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


def command_of(name: str, function: Callable[..., None], help: str | None = None) -> Any:
    """A command of a function, whose parameters are its options."""
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command(name, help=help)(function)
    return typer.main.get_command(made)


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
        print(one_line(line) if line.strip() else line)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned with spaces, numbers to the right: readable, and easy to cut."""
    cells = [[OBEYED.sub(" ", str(cell)) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[k]) for row in cells)]) for k, title in enumerate(header)]
    for row in [list(header), *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())


def show(found: "Table", titles: Mapping[str, str], digits: int = 3) -> None:
    """Columns of a table by name, under their titles; what cannot be estimated is a dash."""
    cells = [[number(x, digits) if isinstance(x, float) else x for x in found[name].tolist()] for name in titles]
    table(list(titles.values()), zip(*cells))


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
