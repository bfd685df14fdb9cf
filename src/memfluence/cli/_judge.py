"""`judge`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memfluence.cli._options import (
    FinestOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    RunArgument,
    TestsOption,
    indices,
)
from memfluence.cli._output import as_json, number, say, table
from memfluence.errors import InputError

__all__ = ["judge"]


def judge(
    run: RunArgument,
    scores: Annotated[
        list[Path],
        typer.Argument(metavar="SCORES...", help="Scores (n_train, n_test), .npy or .npz.", show_default=False),
    ],
    trials: Annotated[
        str | None,
        typer.Option(metavar="FROM:TO", help="Trials that the scores did not use.  [default: all]", show_default=False),
    ] = None,
    test: TestsOption = None,
    outcome: FinestOption = None,
    keep: KeepOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Judge attribution scores by retraining: do they predict outcomes, name who matters, rank as influence does?"""
    from memfluence.runs import open_run
    from memfluence.runs.values import finest_outcome

    if len({str(path) for path in scores}) != len(scores):
        raise InputError("The same scores were given twice; name each file once.")
    opened = open_run(run, memory=memory)
    found = opened.judge(
        {str(path): path for path in scores},
        trials=_range(trials),
        test=indices(test),
        outcome=outcome,
        keep=keep,
    ).to_json()
    by = outcome or finest_outcome(opened)
    if json:
        as_json({"run": str(run), "outcome": by, **found})
        return
    say(f"{found['trials']} trials of {found['masks']} masks, outcome {by}; 95% intervals in brackets.")
    named = [one["named"] for one in found["scores"][0]["counterfactual"]]
    table(
        ("scores", "LDS", "ranking", *(f"top {k} matter by" for k in named)),
        [
            (one["name"], *map(_shown, (one["lds"], one["ranking"], *one["counterfactual"])))
            for one in (
                *found["scores"],
                {"name": "ceiling", **found["ceiling"], "counterfactual": [None] * len(named)},
            )
        ],
    )
    if found["ceiling"]["lds"] is None:
        say("The ceiling of the LDS needs several models per mask: a run with --design repeats:5.")
    if trials is None:
        say("Scores that were made from these trials look too good; --trials FROM:TO judges by others.")


def _range(text: str | None) -> tuple[int | None, int | None] | None:
    """'1000:2000' -> (1000, 2000); either side may be left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        if colon:
            return int(first) if first else None, int(last) if last else None
    except ValueError:
        pass
    raise InputError(f"Trials are given as FROM:TO, such as 1000:2000, the end excluded. Got {text!r} instead.")


def _shown(mean: Mapping[str, Any] | None) -> str:
    return "-" if mean is None else f"{number(mean['value'])} [{number(mean['lower'])}, {number(mean['upper'])}]"
