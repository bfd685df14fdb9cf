"""Options and arguments that several commands share, and how their values are read."""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from memfluence.errors import InputError
from memfluence.training.options import RunOptions, names, settings_of

__all__ = [
    "AddressOption",
    "AnyClass",
    "DataOption",
    "DatasetArgument",
    "DatasetOption",
    "DeviceOption",
    "FinestOption",
    "InflOption",
    "JsonOption",
    "KeepOption",
    "MemOption",
    "MemoryOption",
    "RunArgument",
    "SeedOption",
    "SetOption",
    "TableOption",
    "TestsOption",
    "as_options",
    "indices",
    "names",
    "parameter",
    "read",
    "settings",
    "typed_fields",
    "with_options",
]

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


def settings(pairs: list[str] | None) -> dict[str, str]:
    """['epochs=30'] -> {'epochs': '30'}."""
    return settings_of(pairs or ())
