"""`scores`, `values`, `profile`, `datamodels` and `judge`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from memfluence.cli._terminal import (
    FinestOption,
    KeepOption,
    OpenedRun,
    OutOption,
    Said,
    TestsOption,
    indices,
    number,
    say,
    say_where,
    show,
    table,
)
from memfluence.errors import InputError

_SHOWN = 10  # rows that a person sees; --json and --out give all


def scores(
    run: OpenedRun,
    out: OutOption = None,
    keep: KeepOption = None,
    outcome: Annotated[
        str | None,
        "What is averaged: correct, or what was recorded: score, margin or logit.  [default: score or correct]",
    ] = None,
    estimator: Annotated[str, "plain (Algorithm 1) or adjusted (less variance)."] = "plain",
) -> Said:
    """Memorization of every training example, with standard errors."""
    from memfluence.runs.values import memorization_table

    found = memorization_table(run, keep, outcome=outcome, estimator=estimator)
    if out is not None:
        found.write(out)
    sizes = {"n_train": run.info.n_train, "n_test": run.info.n_test, "trials": len(run.trials)}
    yield {**sizes, "train": found.rows()}
    values, outcome = found["memorization"], outcome or run.outcome
    correct = outcome == "correct"
    say(
        f"{len(run.trials)} trials; {int((values >= 0.25).sum())} of {len(values)} training examples"
        f" have memorization >= 0.25. The most memorized:"
        if correct
        else f"{len(run.trials)} trials; how much keeping an example raises its mean {outcome}. The most:"
    )
    means = {"mean_in": "mean if kept", "mean_out": "mean if held out"}
    if correct:
        means = {"accuracy_in": "right if kept", "accuracy_out": "right if held out"}
    names = ("index", "label", "memorization", "stderr")
    most = (-values).argsort(kind="stable")[:_SHOWN]  # NaN last
    show(run, found.take(most), {name: name for name in names} | means)
    say_where(out, hint=True)


def values(
    run: OpenedRun,
    kind: Annotated[str, "banzhaf, shapley or c-score."] = "banzhaf",
    test: TestsOption = None,
    outcome: Annotated[
        str | None,
        "Utility: the mean of correct, or of a recorded score, margin or logit.  [default: score or correct]",
    ] = None,
    empty: Annotated[float | None, "Utility of no training, for Shapley values.  [default: of a guess]"] = None,
    out: OutOption = None,
) -> Said:
    """Value of every training example for a test set, or its C-score (held-out accuracy).

    Of a run with --groups, values are those of the groups. Banzhaf values need a run with --design bernoulli --keep
    0.5, Shapley values one with --design uniform, C-scores one with any other design and one or several keep fractions.
    """
    from memfluence.runs.values import c_score_table, value_table

    if kind == "c-score":
        if test is not None or outcome not in (None, "correct") or empty is not None:
            raise InputError("C-scores are about training examples alone; leave out --test, --outcome and --empty.")
        found, name = c_score_table(run), "c_score"
        target = "C-score: held-out accuracy, the mean over keep fractions"
    else:
        found, name = value_table(run, kind, test=indices(test), outcome=outcome, empty=empty), "value"
        target = found.notes["target"]
    grouped = "group" in found.columns
    if out is not None:
        found.write(out)
    yield {"target": target, "trials": len(run.trials), "groups" if grouped else "train": found.rows()}
    say(f"{target}; {len(run.trials)} trials. The {'least' if name == 'c_score' else 'highest and the lowest'}:")
    order = (found[name] if name == "c_score" else -found[name]).argsort(kind="stable")
    known = order[: len(order) - int((found[name] != found[name]).sum())]
    shown = (
        known[:_SHOWN] if name == "c_score" or len(known) <= _SHOWN else [*known[: _SHOWN // 2], *known[-_SHOWN // 2 :]]
    )
    who = ("group", "size") if grouped else ("index", "label")
    names = (*who, name, "stderr", *(title for title in found.columns if title.startswith("accuracy_out")))
    show(run, found.take(shown), {title: title for title in names}, 5 if name == "value" else 3)
    say_where(out, hint=True)


def profile(
    run: OpenedRun,
    test: Annotated[int, "Index of a test example.", "TEST"],
    top: Annotated[int, typer.Option(min=1, help="How many of each side to show.")] = 5,
    outcome: Annotated[
        str | None, "correct, or a recorded score, margin or logit.  [default: score or correct]"
    ] = None,
    keep: KeepOption = None,
    out: OutOption = None,
) -> Said:
    """Who helps and who harms one test example: all influences on it, with their errors."""
    from memfluence.runs.values import clear_by_chance, profile_table

    found = profile_table(run, test, outcome=outcome, keep=keep)
    if out is not None:
        found.write(out)
    clear = {"helpful": int((found["lower"] > 0).sum()), "harmful": int((found["upper"] < 0).sum())}
    chance = clear_by_chance(run, test, outcome=outcome, keep=keep)
    known = int((found["influence"] == found["influence"]).sum())
    label, id = run.labels[1][test], run.ids[1][test]
    about = {"test_index": test, "test_id": id, "label": label, "trials": len(run.trials)}
    yield {**about, "clear": {**clear, "expected_by_chance": chance}, "train": found.rows()}
    known_as = "" if id == test else f"id {id}, "
    called = label if run.store.examples.targets() else run.class_names[run.label_codes[1][test]]
    say(
        f"Test example {test} ({known_as}label {called}): 95% intervals leave out 0 for {clear['helpful']} helpful and"
        f" {clear['harmful']} harmful training examples; by chance alone (permuted masks) it would be about"
        f" {chance['helpful']:.0f} and {chance['harmful']:.0f}."
    )
    sides = range(known) if known <= 2 * top else [*range(top), *range(known - top, known)]
    names = ("label", "influence", "stderr", "lower", "upper")
    show(run, found.take(list(sides)), {"index": "train"} | {name: name for name in names})
    say_where(out, hint=True)


def datamodels(
    run: OpenedRun,
    test: Annotated[str, typer.Option(metavar="LIST", help="Test examples, such as 3,7,20-29.")],
    outcome: FinestOption = None,
    keep: KeepOption = None,
    out: Annotated[Path | None, "Write test, weights, intercept, alpha, correlation.", "--out FILE.npz"] = None,
) -> Said:
    """Predict outcomes of test examples from which training examples were kept (sparse linear models)."""
    from memfluence.runs import Table
    from memfluence.runs.values import finest_outcome

    if out is not None and out.suffix != ".npz":
        raise InputError(f"{out} must end in .npz, which holds the matrix of weights.")
    found = run.datamodels(indices(test), outcome=outcome, keep=keep)
    ids = run.ids[0], run.ids[1][found.test]
    if out is not None:
        names = ("test", "weights", "intercept", "alpha", "correlation")
        Table({name: getattr(found, name) for name in names} | dict(zip(("train_id", "test_id"), ids))).write(out)
    best = [int(weights.argmax()) if (weights > 0).any() else None for weights in found.weights.T]
    models = [
        {
            "test_index": int(found.test[k]),
            "test_id": ids[1][k],
            "correlation": float(found.correlation[k]),
            "nonzero": int((found.weights[:, k] != 0).sum()),
            "alpha": float(found.alpha[k]),
            "most_helpful": best[k],
            "most_helpful_id": None if best[k] is None else ids[0][best[k]],
        }
        for k in range(len(found.test))
    ]
    by = outcome or finest_outcome(run)
    yield {"outcome": by, "trials": found.trials, "trials_held_out": found.trials_held_out, "models": models}
    say(
        f"Fitted to {found.trials} trials ({by}); correlations with the outcomes of"
        f" {found.trials_held_out} held-out trials:"
    )
    titles = {"test_id": "test id", "test_index": "test", "correlation": "correlation", "nonzero": "nonzero"}
    titles |= {"most_helpful_id": "most helpful id", "most_helpful": "most helpful"}
    if all(model["test_id"] == model["test_index"] for model in models):
        titles = {name: title for name, title in titles.items() if not name.endswith("_id")}
    cells = [[model[name] for name in titles] for model in models[: 2 * _SHOWN]]
    said = [["" if x is None else number(x) if isinstance(x, float) else x for x in row] for row in cells]
    table(list(titles.values()), said)


def judge(
    run: OpenedRun,
    scores: Annotated[list[Path], "Scores (n_train, n_test), .npy or .npz.", "SCORES..."],
    trials: Annotated[str | None, "Trials that the scores did not use.  [default: all]", "--trials FROM:TO"] = None,
    test: TestsOption = None,
    outcome: FinestOption = None,
    keep: KeepOption = None,
) -> Said:
    """Judge attribution scores by retraining: do they predict outcomes, name who matters, rank as influence does?"""
    from memfluence.runs.values import finest_outcome

    if len({str(path) for path in scores}) != len(scores):
        raise InputError("The same scores were given twice; name each file once.")
    files, chosen = {str(path): path for path in scores}, indices(test)
    found = run.judge(files, trials=_range(trials), test=chosen, outcome=outcome, keep=keep).to_json()
    by = outcome or finest_outcome(run)
    yield {"run": str(run.path), "outcome": by, **found}
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
