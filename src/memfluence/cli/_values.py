"""`scores`, `values`, `profile`, `datamodels` and `judge`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memfluence.cli._terminal import (
    FinestOption,
    JsonOption,
    KeepOption,
    MemoryOption,
    RunArgument,
    TableOption,
    TestsOption,
    as_json,
    indices,
    number,
    say,
    show,
    table,
)
from memfluence.errors import InputError

_SHOWN = 10  # rows that a person sees; --json and --out give all


def scores(
    run: RunArgument,
    out: TableOption = None,
    keep: KeepOption = None,
    outcome: Annotated[
        str, typer.Option(help="What is averaged: correct, or what was recorded: margin or logit.")
    ] = "correct",
    estimator: Annotated[str, typer.Option(help="plain (Algorithm 1) or adjusted (less variance).")] = "plain",
    memory: MemoryOption = None,
    json: JsonOption = False,
) -> None:
    """Memorization of every training example, with standard errors."""
    from memfluence.runs import Table, open_run
    from memfluence.runs.values import memorization_table

    opened = open_run(run, memory=memory)
    found = memorization_table(opened, keep, outcome=outcome, estimator=estimator)
    if out is not None:
        ids = opened.ids
        (found if ids is None else Table({**found.columns, "id": ids[0]})).write(out)
    if json:
        sizes = {"n_train": opened.info.n_train, "n_test": opened.info.n_test, "trials": len(opened.trials)}
        as_json({**sizes, "train": found.rows()})
        return
    values = found["memorization"]
    correct = outcome == "correct"
    say(
        f"{len(opened.trials)} trials; {int((values >= 0.25).sum())} of {len(values)} training examples"
        f" have memorization >= 0.25. The most memorized:"
        if correct
        else f"{len(opened.trials)} trials; how much keeping an example raises its mean {outcome}. The most:"
    )
    means = {"mean_in": "mean if kept", "mean_out": "mean if held out"}
    if correct:
        means = {"accuracy_in": "right if kept", "accuracy_out": "right if held out"}
    names = ("index", "label", "memorization", "stderr")
    most = (-values).argsort(kind="stable")[:_SHOWN]  # NaN last
    show(found.take(most), {name: name for name in names} | means)
    say(f"All of them are in {out}." if out else "All of them: --out FILE.csv or --json.")


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
    from memfluence.runs import open_run
    from memfluence.runs.values import c_score_table, value_table

    opened = open_run(run, memory=memory)
    if kind == "c-score":
        if test is not None or outcome != "correct" or empty is not None:
            raise InputError("C-scores are about training examples alone; leave out --test, --outcome and --empty.")
        found, name = c_score_table(opened), "c_score"
        target = "C-score: held-out accuracy, the mean over keep fractions"
    else:
        found, name = value_table(opened, kind, test=indices(test), outcome=outcome, empty=empty), "value"
        target = found.notes["target"]
    grouped = "group" in found.columns
    if out is not None:
        found.write(out)
    if json:
        as_json({"target": target, "trials": len(opened.trials), "groups" if grouped else "train": found.rows()})
        return
    say(f"{target}; {len(opened.trials)} trials. The {'least' if name == 'c_score' else 'highest and the lowest'}:")
    order = (found[name] if name == "c_score" else -found[name]).argsort(kind="stable")
    known = order[: len(order) - int((found[name] != found[name]).sum())]
    shown = (
        known[:_SHOWN] if name == "c_score" or len(known) <= _SHOWN else [*known[: _SHOWN // 2], *known[-_SHOWN // 2 :]]
    )
    who = ("group", "size") if grouped else ("index", "label")
    names = (*who, name, "stderr", *(title for title in found.columns if title.startswith("accuracy_out")))
    show(found.take(shown), {title: title for title in names}, 5 if name == "value" else 3)
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
    from memfluence.runs import open_run
    from memfluence.runs.values import clear_by_chance, profile_table

    opened = open_run(run, memory=memory)
    found = profile_table(opened, test, outcome=outcome, keep=keep)
    if out is not None:
        found.write(out)
    clear = {"helpful": int((found["lower"] > 0).sum()), "harmful": int((found["upper"] < 0).sum())}
    chance = clear_by_chance(opened, test, outcome=outcome, keep=keep)
    known = int((found["influence"] == found["influence"]).sum())
    label = opened.labels[1][test]
    if json:
        about = {"test_index": test, "label": label, "trials": len(opened.trials)}
        as_json({**about, "clear": {**clear, "expected_by_chance": chance}, "train": found.rows()})
        return
    say(
        f"Test example {test} (label {label}): 95% intervals leave out 0 for {clear['helpful']} helpful and"
        f" {clear['harmful']} harmful training examples; by chance alone (permuted masks) it would be about"
        f" {chance['helpful']:.0f} and {chance['harmful']:.0f}."
    )
    sides = range(known) if known <= 2 * top else [*range(top), *range(known - top, known)]
    names = ("label", "influence", "stderr", "lower", "upper")
    show(found.take(list(sides)), {"index": "train"} | {name: name for name in names})
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
    from memfluence.runs import Table, open_run
    from memfluence.runs.values import finest_outcome

    if out is not None and out.suffix != ".npz":
        raise InputError(f"{out} must end in .npz, which holds the matrix of weights.")
    opened = open_run(run, memory=memory)
    found = opened.datamodels(indices(test), outcome=outcome, keep=keep)
    if out is not None:
        names = ("test", "weights", "intercept", "alpha", "correlation")
        Table({name: getattr(found, name) for name in names}).write(out)
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
    about = {"outcome": outcome or finest_outcome(opened), "trials": found.trials}
    about["trials_held_out"] = found.trials_held_out
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
