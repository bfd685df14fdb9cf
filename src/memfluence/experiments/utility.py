"""Marginal utility of the training examples in high-influence pairs (S_h), and how much of it the pairs explain.

Definition. S_h and S'_h are the training and the test examples in high-influence pairs, as a run finds them. Models are
trained on all of S and on S without S_h. How much accuracy is lost on the whole test set, how much of that is due to
S'_h, |S'_h| / n_test times the loss on S'_h, and how much to the other test examples. The paper (CIFAR-100, 100 runs):
76.06 +- 0.28 and 73.52 +- 0.25, 2.54 +- 0.2 lost, of which S'_h contributes 2.38 +- 0.17: the influences that were
found are all that S_h is good for.

Estimator. Models are counted, not averaged: the correct answers on S'_h and on the rest are integers over one
denominator and add up to the whole exactly (`decomposition`).

Variance. Standard deviations are of one run (of a difference: of one run of each side), standard errors of the means.
The two sides share no seeds, so they are not paired.

Failure cases. The models are new, so nothing here suffers from the selection of the pairs; which pairs were selected
does: with few trials many are chance, and S_h is then larger and S'_h less affected. Removing S_h may empty a class:
see `removal`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, PAGE, SOFT, panels
from memfluence.errors import InputError
from memfluence.experiments._result import (
    Result,
    Said,
    Spread,
    check_classes,
    check_repeats,
    check_trials,
    decimal,
    difference,
    models,
    of_keep,
    points,
    spread,
    warn,
)
from memfluence.experiments.doing import Retraining, correct_by_trial
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.wording import value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADING = "What the training examples in pairs are good for (Sec. 3.3)"

ARMS = ("all", "without")


class Part(TypedDict):
    """A set of test examples."""

    examples: int
    accuracy: Spread
    accuracy_without: Spread
    difference: Spread
    contribution: Spread  # to the test set's difference


def plan(
    run: Run,
    repeats: int = 20,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    seed: int = 0,
    keep: float | None = None,
    begun: Sequence[int] = (),
) -> Retraining:
    """`repeats` models that keep all examples, and as many without S_h, by turns: wherever training is cut, both sides
    have models. `begun`: see `removal.plan`.
    """
    check_trials(run)
    check_repeats(repeats)
    pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep)
    if not len(pairs):
        raise InputError(f"{run.path} has no high-influence pairs to remove. {pairs.warning}")
    if pairs.warning is not None:  # before anything is trained
        warn(
            f"S_h would be made of {len(pairs):,} pairs, of which about {pairs.expected_by_chance:,.0f} are expected by"
            f" chance, and its models would measure noise as well; raise the threshold on influence (`infl`, now"
            f" {infl:g}), or run more trials."
        )
    kept = np.ones(run.info.n_train, dtype=bool)
    kept[pairs.train_index] = False
    emptied = check_classes(run, kept, "in high-influence pairs")

    def models(part: range) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        for repeat in part:
            yield np.ones_like(kept), {"arm": "all", "repeat": repeat}
            yield kept, {"arm": "without", "repeat": repeat}

    return Retraining.of(
        "utility",
        run,
        models,
        repeats=repeats,
        begun=begun,
        keep=keep,
        seed=seed,
        mem=mem,
        infl=infl,
        same_class=same_class,
        pairs=len(pairs),
        pairs_by_chance=pairs.expected_by_chance,
        influence_from_trials=len(of_keep(run, keep)),
        removed=int((~kept).sum()),
        influenced=np.unique(pairs.test_index).tolist(),  # S'_h
        emptied_classes=emptied,
    )


def summarize(plan: Retraining, trials: Trials) -> Result:
    """Accuracies of both sides on the whole test set and on S'_h, the loss, and what contributes to it."""
    settings, n_test = plan.settings, int(plan.settings["n_test"])
    influenced = np.zeros(n_test, dtype=bool)
    influenced[settings["influenced"]] = True
    sets = {"test": np.ones(n_test, dtype=bool), "influenced": influenced, "rest": ~influenced}
    correct = correct_by_trial(plan, trials)
    counts = {  # correct answers of each model, integers: (models,) for each arm and set of test examples
        (arm, name): np.array(
            [int(correct[number][members].sum()) for number in plan.rows(arm=arm) if number in correct], dtype=np.int64
        )
        for arm in ARMS
        for name, members in sets.items()
    }
    if missing := [arm for arm in ARMS if not len(counts[arm, "test"])]:
        raise InputError(f"There is no trained model of the side {missing[0]!r} yet; run the experiment to its end.")
    parts: dict[str, Part] = {}
    for name, members in sets.items():
        size = int(members.sum())
        sides = [counts[arm, name] / size if size else counts[arm, name] * np.nan for arm in ARMS]
        parts[name] = {
            "examples": size,
            "accuracy": spread(sides[0]),
            "accuracy_without": spread(sides[1]),
            "difference": difference(*sides),
            "contribution": difference(*(counts[arm, name] / n_test for arm in ARMS)),
        }
    whole, part, rest = (one["contribution"] for one in parts.values())
    numbers = {
        **parts,
        "decomposition": _decomposition(counts, n_test),
        "share_of_influenced": part["mean"] / whole["mean"] if whole["mean"] else float("nan"),
        "within_one_sd": abs(whole["mean"] - part["mean"]) <= whole["sd"],
        "rest_in_standard_errors": rest["mean"] / rest["stderr"] if rest["stderr"] else float("nan"),
        "paired": False,
    }
    rows = [
        {"arm": arm, "set": name, "run": k, "correct": int(one), "examples": parts[name]["examples"]}
        for (arm, name), of in counts.items()
        for k, one in enumerate(of)
    ]
    there = [len(counts[arm, "test"]) for arm in ARMS]
    title = (
        f"{settings['about']}, {settings['removed']:,} of them in {settings['pairs']:,} pairs from"
        f" {settings['influence_from_trials']:,} models; {models(there)} a side"
    )
    return Result("utility", title, numbers, rows, settings)


def _decomposition(counts: dict[tuple[str, str], np.ndarray], n_test: int) -> dict[str, int]:
    """The loss on the test set, and what S'_h and the rest add to it, as integers over one denominator."""
    models = {arm: len(counts[arm, "test"]) for arm in ARMS}
    found = {
        name: int(counts["all", name].sum()) * models["without"] - int(counts["without", name].sum()) * models["all"]
        for name in ("test", "influenced", "rest")
    }
    return {**found, "denominator": models["all"] * models["without"] * n_test}


_SIDES = (("all", "accuracy", "all kept", BLUE), ("without", "accuracy_without", "without S$_h$", ORANGE))


def draw(result: Result) -> "Figure":
    """Accuracy of every model with and without the high-influence examples, and where the loss comes from."""
    caption = (
        f"{result.title}. S$_h$: the training examples in pairs, S'$_h$: the"
        f" {result.numbers['influenced']['examples']:,} test examples in them. a, b: a dot is one model, a bar mean and"
        " standard deviation. c: what is lost without S$_h$, by test examples; bars are one standard deviation of one"
        " model of each side."
    )
    headings = ("Whole test set", "Influenced test examples S'$_h$", "Accuracy lost without S$_h$")
    figure, axes = panels(caption, PAGE, 2.4, headings, width_ratios=(1, 1, 1.15))
    for one, name in zip(axes, ("test", "influenced")):
        _accuracies(one, result, name)
    axes[0].set_ylabel("test accuracy (%)")
    _loss(axes[2], result)
    return figure


def _accuracies(axes: "Axes", result: Result, name: str) -> None:
    """A dot for every model, a bar for mean and standard deviation."""
    table = result.table[result.table["set"] == name]
    for x, (arm, key, _, colour) in enumerate(_SIDES):
        of = table[table["arm"] == arm]
        values = 100 * of["correct"].to_numpy() / max(1, result.numbers[name]["examples"])
        spots = x + 0.22 * (np.arange(len(values)) / max(1, len(values) - 1) - 0.5)
        axes.plot(spots, values, ".", color=colour, alpha=0.45, markersize=4)
        found = result.numbers[name][key]
        axes.errorbar(
            x + 0.3, 100 * found["mean"], 100 * found["sd"], color=colour, marker="o", markersize=4, capsize=2.5
        )
        axes.annotate(
            f"{100 * found['mean']:.1f}\n± {100 * found['sd']:.1f}",
            (x + 0.3, 100 * found["mean"]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=7,
        )
    axes.set_xlim(-0.4, 2)
    axes.set_xticks(range(len(_SIDES)), [side[2] for side in _SIDES])


def _loss(axes: "Axes", result: Result) -> None:
    numbers = result.numbers
    bars = (("test", "lost in all", INK), ("influenced", "by S'$_h$", ORANGE), ("rest", "by the rest", GREY))
    labels = []
    for row, (name, label, colour) in enumerate(bars):
        found = numbers[name]["contribution"]
        axes.barh(row, 100 * found["mean"], color=colour, height=0.6)
        axes.errorbar(100 * found["mean"], row, xerr=100 * found["sd"], color=SOFT, capsize=2.5, linewidth=1)
        labels.append(f"{label}\n{value(100 * found['mean'], 1)} ± {value(100 * found['sd'], 1)}")
    axes.axvline(0, color=SOFT, linewidth=0.8)
    axes.set_yticks(range(3), labels)
    axes.invert_yaxis()
    axes.set_xlabel("points of test accuracy")


def say(result: Result) -> Said:
    found = result.numbers
    sets = {"test": "whole test set", "influenced": "influenced", "rest": "the rest"}
    columns = ("accuracy", "accuracy_without", "difference", "contribution")
    rows = (
        (title, found[name]["examples"], *(points(found[name][key], "sd") for key in columns))
        for name, title in sets.items()
    )
    errors = (f"{sets[name]} {decimal(100 * found[name]['contribution']['stderr'], 2)}" for name in sets)
    line = (
        "± is one standard deviation of one run (of a difference: of one run of each side, which are not paired);"
        f" standard errors of the losses: {', '.join(errors)}. What the influenced examples contribute is"
        f" {_within(found)} one standard deviation of the whole loss, as the paper states it"
    )
    away = decimal(found["rest_in_standard_errors"], 1)
    rest = "" if away == "-" else f"; the rest of it is {away} standard errors from 0, which says more"
    header = ("test examples", "n", "all kept %", "without S_h %", "lost %", "contributes, points")
    return Said(header, rows, [f"{line}{rest}."])


def report(result: Result, of: str) -> list[str]:
    found, settings = result.numbers, result.settings
    away = decimal(found["rest_in_standard_errors"], 1)
    from_0 = "" if away == "-" else f", which is {away} standard errors from 0"
    return [
        f"Without the {settings['removed']:,} training examples in the {settings['pairs']:,} pairs (of which"
        f" {settings['pairs_by_chance']:,.0f} are expected by chance) models lose"
        f" {points(found['test']['difference'])} points of accuracy (± standard error,"
        f" {found['test']['difference']['n']} models a side, not paired). The {found['influenced']['examples']:,} test"
        f" examples in pairs contribute {points(found['influenced']['contribution'])}, all others"
        f" {points(found['rest']['contribution'])}{from_0}."
        f" As the paper states it, what the test examples in pairs contribute is {_within(found)} one standard"
        f" deviation of the whole ({points(found['test']['contribution'], 'sd')} for one run of each side); the"
        " standard errors say more.",
    ]


def _within(found: Mapping[str, Any]) -> str:
    return "within" if found["within_one_sd"] else "not within"
