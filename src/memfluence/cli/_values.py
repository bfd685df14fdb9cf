"""`values`, `profile` and `datamodels`."""

from pathlib import Path
from typing import Annotated

import typer

from memfluence.cli._options import (
    FinestOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    RunArgument,
    TableOption,
    TestsOption,
    indices,
)
from memfluence.cli._output import as_json, number, say, table
from memfluence.errors import InputError

__all__ = ["datamodels", "profile", "values"]

_SHOWN = 10  # rows that a person sees; --json and --out give all


def values(
    run: RunArgument,
    kind: Annotated[str, typer.Option(help="banzhaf, shapley or c-score.")] = "banzhaf",
    test: TestsOption = None,
    outcome: Annotated[
        str, typer.Option(help="Utility: the mean of correct, or of a recorded margin or logit.")
    ] = "correct",
    empty: Annotated[
        float | None,
        typer.Option(help="Utility of no training, for Shapley values.  [default: of a guess]", show_default=False),
    ] = None,
    out: TableOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Value of every training example for a test set, or its C-score (held-out accuracy).

    Of a run with --groups, values are those of the groups. Banzhaf values need a run with --design bernoulli --keep
    0.5, Shapley values one with --design uniform, C-scores one with any other design and one or several keep fractions.
    """
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run
    from memfluence.runs.values import c_score_columns, value_columns

    opened = open_run(run, memory=memory)
    if kind == "c-score":
        if test is not None or outcome != "correct" or empty is not None:
            raise InputError("C-scores are about training examples alone; leave out --test, --outcome and --empty.")
        columns, name = c_score_columns(opened), "c_score"
        target = "C-score: held-out accuracy, the mean over keep fractions"
    else:
        columns, target = value_columns(opened, kind, test=indices(test), outcome=outcome, empty=empty)
        name = "value"
    if out is not None:
        write_table(columns, out)
    if json:
        members = "groups" if "group" in columns else "train"
        as_json({"target": target, "trials": len(opened.trials), members: rows(columns)})
        return
    say(f"{target}; {len(opened.trials)} trials. The {'least' if name == 'c_score' else 'highest and the lowest'}:")
    order = (columns[name] if name == "c_score" else -columns[name]).argsort(kind="stable")
    known = order[: len(order) - int((columns[name] != columns[name]).sum())]
    shown = (
        known[:_SHOWN] if name == "c_score" or len(known) <= _SHOWN else [*known[: _SHOWN // 2], *known[-_SHOWN // 2 :]]
    )
    more = [title for title in columns if title.startswith("accuracy_out")]
    who = ("group", "size") if "group" in columns else ("index", "label")
    table(
        (*who, name, "stderr", *more),
        (
            (
                *(columns[title][i] for title in who),
                *(number(columns[title][i], 5 if name == "value" else 3) for title in (name, "stderr", *more)),
            )
            for i in shown
        ),
    )
    say(f"All of them are in {out}." if out else "All of them: --out FILE.csv or --json.")


def profile(
    run: RunArgument,
    test: Annotated[int, typer.Argument(metavar="TEST", help="Index of a test example.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="How many of each side to show.")] = 5,
    outcome: Annotated[str, typer.Option(help="correct, or a recorded margin or logit.")] = "correct",
    keep: KeepOption = None,
    out: TableOption = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Who helps and who harms one test example: all influences on it, with their errors."""
    from memfluence.exchange import rows, write_table
    from memfluence.runs import open_run
    from memfluence.runs.values import clear_by_chance, profile_columns

    opened = open_run(run, memory=memory)
    columns = profile_columns(opened, test, outcome=outcome, keep=keep)
    if out is not None:
        write_table(columns, out)
    clear = {"helpful": int((columns["lower"] > 0).sum()), "harmful": int((columns["upper"] < 0).sum())}
    chance = clear_by_chance(opened, test, outcome=outcome, keep=keep)
    known = int((columns["influence"] == columns["influence"]).sum())
    label = opened.classes[opened.label_codes[1][test]]
    if json:
        about = {"test_index": test, "label": label, "trials": len(opened.trials)}
        as_json({**about, "clear": {**clear, "expected_by_chance": chance}, "train": rows(columns)})
        return
    say(
        f"Test example {test} (label {label}): 95% intervals leave out 0 for {clear['helpful']} helpful and"
        f" {clear['harmful']} harmful training examples; by chance alone (permuted masks) it would be about"
        f" {chance['helpful']:.0f} and {chance['harmful']:.0f}."
    )
    sides = range(known) if known <= 2 * top else [*range(top), *range(known - top, known)]
    table(
        ("train", "label", "influence", "stderr", "lower", "upper"),
        (
            (
                columns["index"][k],
                columns["label"][k],
                *(number(columns[name][k]) for name in ("influence", "stderr", "lower", "upper")),
            )
            for k in sides
        ),
    )
    say(f"All of them are in {out}." if out else "All of them: --out FILE.csv or --json.")


def datamodels(
    run: RunArgument,
    test: Annotated[
        str, typer.Option("--test", metavar="LIST", help="Test examples, such as 3,7,20-29.", show_default=False)
    ],
    outcome: FinestOption = None,
    keep: KeepOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz", help="Write test, weights, intercept, alpha, correlation.", show_default=False
        ),
    ] = None,
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Predict outcomes of test examples from which training examples were kept (sparse linear models)."""
    from memfluence.exchange import write_table
    from memfluence.runs import open_run
    from memfluence.runs.values import chosen_outcome
    from memfluence.runs.values import datamodels as fit

    if out is not None and out.suffix != ".npz":
        raise InputError(f"{out} must end in .npz, which holds the matrix of weights.")
    opened = open_run(run, memory=memory)
    found = fit(opened, indices(test), outcome=outcome, keep=keep)
    if out is not None:
        names = ("test", "weights", "intercept", "alpha", "correlation")
        write_table({name: getattr(found, name) for name in names}, out)
    models = [
        {
            "test_index": int(found.test[k]),
            "correlation": float(found.correlation[k]),
            "nonzero": int((found.weights[:, k] != 0).sum()),
            "alpha": float(found.alpha[k]),
            "most_helpful": int(found.weights[:, k].argmax()) if (found.weights[:, k] > 0).any() else None,
        }
        for k in range(len(found.test))
    ]
    about = {
        "outcome": chosen_outcome(opened, outcome),
        "trials": found.trials,
        "trials_held_out": found.trials_held_out,
    }
    if json:
        as_json({**about, "models": models})
        return
    say(
        f"Fitted to {found.trials} trials ({about['outcome']}); correlations with the outcomes of"
        f" {found.trials_held_out} held-out trials:"
    )
    table(
        ("test", "correlation", "nonzero", "most helpful"),
        (
            (
                m["test_index"],
                number(m["correlation"]),
                m["nonzero"],
                "" if m["most_helpful"] is None else m["most_helpful"],
            )
            for m in models[: 2 * _SHOWN]
        ),
    )
