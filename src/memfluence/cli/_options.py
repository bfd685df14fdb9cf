"""Options and arguments that several commands share, and how their values are read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from memfluence.errors import InputError

__all__ = [
    "AddressOption",
    "AnyClass",
    "DataOption",
    "DatasetArgument",
    "DatasetOption",
    "DesignOption",
    "DeviceOption",
    "FinestOption",
    "GpusOption",
    "GroupsOption",
    "InflOption",
    "JsonOption",
    "KeepOption",
    "KeepsOption",
    "LearnerOption",
    "MemOption",
    "MemoryOption",
    "RecordOption",
    "RunArgument",
    "SeedOption",
    "SetOption",
    "TableOption",
    "TestsOption",
    "TrialsOption",
    "fractions",
    "indices",
    "names",
    "settings",
]

RunArgument = Annotated[  # text: a Path would make s3:/bucket of s3://bucket
    str, typer.Argument(metavar="RUN", help="Directory of a run, or its URI (s3://bucket/run).", show_default=False)
]
DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="digits, longtail, csv:FILE, npz:FILE, mnist:DIR, cifar10:DIR, cifar100:DIR, folder:DIR, imagenet:DIR or"
        " hf:NAME.",
        show_default=False,
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", "--dataset", help="Where the data are, if the run does not say.", show_default=False),
]
DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="Where the data are, if the run does not say.", show_default=False)
]
LearnerOption = Annotated[
    str,
    typer.Option(
        help="Built-in name, or module:attribute or file.py:attribute of a scikit-learn estimator or of a function"
        " train(x, y, seed) -> predict; file.py:Net@fast is a torch module with a recipe."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Setting of a built-in learner or recipe, option of a network, or parameter of an estimator; repeatable.",
        show_default=False,
    ),
]
TrialsOption = Annotated[
    int | None, typer.Option(help="How many models to train.  [default: 2000]", show_default=False)
]
KeepsOption = Annotated[
    str | None,
    typer.Option(
        "--keep",
        help="Fraction of the training examples kept; or several: 0.5,0.7.  [default: 0.7]",
        show_default=False,
    ),
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        help="fixed, balanced[:block], bernoulli, lemma, repeats[:models per mask], uniform[:smallest subset] or"
        " explicit:FILE.  [default: fixed; lemma with --groups]",
        show_default=False,
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.npy|NAME",
        help="Keep or leave out whole groups: a value per training example, 'class', or an attribute of the data.",
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option(help="Root of all randomness.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Of the Ray cluster.  [default: the one that this machine belongs to]",
        show_default=False,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        metavar="GPUS",
        help="With --engine ray: such as 0.5 for two to a GPU.  [default: 1 with --device cuda, otherwise 0]",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
RecordOption = Annotated[
    str, typer.Option(help="Beside correctness: prediction, margin, logit, or several with commas.", show_default=False)
]
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


def fractions(text: str | None) -> list[float] | None:
    """'0.5,0.7' -> [0.5, 0.7]."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"The 'keep' parameter must be a fraction or several, such as 0.5,0.7. Got {text!r}."
        ) from None


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


def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def settings(pairs: Iterable[str] | None) -> dict[str, str]:
    """['epochs=30'] -> {'epochs': '30'}."""
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes NAME=VALUE, such as epochs=30. Got {pair!r} instead.")
        found[name.strip()] = value.strip()
    return found
