"""Removal (the paper's Fig. 2): what memorized examples are worth to the test accuracy, taken together.

Definition. For each threshold, models are trained without the training examples whose memorization, as a run estimates
it, is at or above the threshold; as controls, models without as many examples drawn at random, anew in each repeat; and
models that keep everything. All repeats differ in the learner's seeds too. What is removed at 0.3 and what that costs
is the paper's "share and utility of memorized examples" (ImageNet: 32% of examples, whose removal costs 3.4% of
accuracy, against 2.6% for as many random ones).

Variance. Points are means over repeats with their standard deviation (the band) and standard error. That of the random
control holds the draw of the examples as well. Arms share no seeds, so differences are of unpaired runs.

Failure cases. Memorization is estimated, so examples near a threshold fall on either side by chance. A threshold that
no example reaches is dropped, with a warning. One whose removal empties a class is trained all the same, since that is
what the removal of memorized examples does, with a warning and with the classes in the result: its models cannot get
the test examples of that class right, and the random control can. One that leaves fewer than two classes is refused.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np

from memfluence.drawing import BLUE, COLUMN, GREY, INK, ORANGE, curve, legend, panels
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
from memfluence.seeding import generator, random_subset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "What memorized examples are worth (Fig. 2)"

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MEMORIZED = 0.3  # the paper's, where it states the share of memorized examples and their utility


class Point(TypedDict):
    """Models without what is memorized at a threshold, and without as many random examples."""

    threshold: float
    removed: int
    share: float  # removed
    fraction_left: float
    accuracy: Spread
    accuracy_random: Spread
    cost: Spread
    cost_random: Spread
    excess: Spread  # how much more the memorized ones are worth
    emptied_classes: list[str]


def plan(
    run: Run,
    thresholds: Annotated[Sequence[float], "Of memorization."] = THRESHOLDS,
    repeats: int = 5,
    *,
    mem: Annotated[float, "Threshold at which share and utility are stated."] = MEMORIZED,
    seed: int = 0,
    keep: float | None = None,
    begun: Sequence[int] = (),
) -> Retraining:
    """The models of the experiment: `repeats` that keep all, and for each threshold `repeats` without the memorized
    examples and as many without random ones.

    `mem` is the threshold of the statement about share and utility, added to the others. `begun` says how many repeats
    there were before, to which more are added; those of a repeat depend on its number and the seed alone.
    """
    check_trials(run)
    check_repeats(repeats)
    value = run.estimate_memorization(keep).value  # (n_train,)
    chosen = sorted({*(_checked(one) for one in thresholds), _checked(mem)})
    counts = {one: int((value >= one).sum()) for one in chosen}
    used = [one for one in chosen if counts[one]]
    if not used:
        raise InputError(
            f"No example of {run.path} has a memorization of {chosen[0]:g} or more (the largest is"
            f" {np.nanmax(value):.2f}); give lower `thresholds`."
        )
    if unused := [f"{one:g}" for one in chosen if one not in used]:
        warn(f"No example is memorized at {', '.join(unused)} or above, so there is nothing to remove there.")
    emptied: dict[str, list[str]] = {}
    left = {}  # threshold: (n_train,) bool, what is kept; what is not estimated (NaN) is
    for threshold in used:
        left[threshold] = ~(value >= threshold)
        emptied[f"{threshold:g}"] = check_classes(run, left[threshold], f"memorized at {threshold:g} or above")

    def models(part: range) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        for repeat in part:
            yield np.ones(len(value), dtype=bool), {"arm": "all", "repeat": repeat}
        for k, (threshold, kept) in enumerate(left.items()):
            for repeat in part:
                yield kept, {"arm": "memorized", "threshold": threshold, "repeat": repeat}
            for repeat in part:
                rng = generator(seed, "resample", repeat * len(left) + k)
                random = random_subset(rng, len(value), int(kept.sum()))
                yield random, {"arm": "random", "threshold": threshold, "repeat": repeat}

    return Retraining.of(
        "removal",
        run,
        models,
        repeats=repeats,
        begun=begun,
        keep=keep,
        seed=seed,
        thresholds=used,
        without_examples=[one for one in chosen if one not in used],
        mem=_checked(mem),
        memorization_from_trials=len(of_keep(run, keep)),
        emptied_classes=emptied,
    )


def summarize(plan: Retraining, trials: Trials) -> Result:
    """Test accuracy at each threshold, and what it costs to be without the memorized examples and without random ones.

    Points have as many repeats as there are trials of them; one without any is NaN.
    """
    accuracy = {number: float(row.mean()) for number, row in correct_by_trial(plan, trials).items()}
    settings = plan.settings

    def of(**purpose: Any) -> list[float]:
        return [accuracy[number] for number in plan.rows(**purpose) if number in accuracy]

    whole = of(arm="all")
    points: list[Point] = []
    for threshold in settings["thresholds"]:
        memorized, random = (of(arm=arm, threshold=threshold) for arm in ("memorized", "random"))
        removed = int((~plan.masks[plan.rows(arm="memorized", threshold=threshold)[0]]).sum())
        points.append(
            {
                "threshold": threshold,
                "removed": removed,
                "share": removed / settings["n_train"],
                "fraction_left": 1 - removed / settings["n_train"],
                "accuracy": spread(memorized),
                "accuracy_random": spread(random),
                "cost": difference(whole, memorized),
                "cost_random": difference(whole, random),
                "excess": difference(random, memorized),
                "emptied_classes": settings["emptied_classes"][f"{threshold:g}"],
            }
        )
    rows = [
        {
            **{"arm": one["arm"], "threshold": one.get("threshold", float("nan")), "repeat": one["repeat"]},
            "trial": number,
            "removed": int((~plan.masks[number]).sum()),
            "accuracy": accuracy[number],
        }
        for number, one in enumerate(plan.purposes)
        if number in accuracy
    ]
    at_mem = next((one for one in points if one["threshold"] == settings["mem"]), None)
    numbers = {"accuracy": spread(whole), "points": points, "memorized": at_mem, "paired": False}
    there = [len(whole), *(side["n"] for one in points for side in (one["accuracy"], one["accuracy_random"]))]
    title = (
        f"{settings['about']}, memorization from {settings['memorization_from_trials']:,} models;"
        f" {models(there)} a point"
        + ("; some removals empty classes" if any(settings["emptied_classes"].values()) else "")
    )
    return Result("removal", title, numbers, rows, settings)


def _checked(threshold: float) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise InputError(f"A threshold of memorization must be a number in (0, 1]. Got {threshold!r} instead.")
    return float(threshold)


def draw(result: Result) -> "Figure":
    """Test accuracy after the removal of memorized examples, against random ones; below, what is left of the data."""
    points, whole = result.numbers["points"], result.numbers["accuracy"]
    at = [one["threshold"] for one in points]
    headings = ("Test accuracy without them", "Training examples left")
    caption = f"{result.title}. Bands and the grey strip are one standard deviation of one model."
    figure, (upper, lower) = panels(caption, COLUMN, 4.2, headings, columns=1, sharex=True, height_ratios=(3, 1))
    upper.axhspan(
        100 * (whole["mean"] - whole["sd"]), 100 * (whole["mean"] + whole["sd"]), color=GREY, alpha=0.2, linewidth=0
    )
    upper.axhline(100 * whole["mean"], color=INK, linewidth=0.8, linestyle=":", label="nothing removed")
    for key, label, colour in (
        ("accuracy_random", "as many random ones removed", BLUE),
        ("accuracy", "memorized ones removed", ORANGE),
    ):
        mean, sd = ([100 * one[key][which] for one in points] for which in ("mean", "sd"))
        curve(upper, at, mean, sd, colour=colour, label=label)
    lower.plot(at, [100 * one["fraction_left"] for one in points], color=INK, marker="o")
    lower.set_ylim(0, 105)
    lower.set_yticks([0, 50, 100])
    lower.set_xticks(at, [f"{one:g}" for one in at])
    lower.set_xlabel("removed: memorization ≥")
    lower.set_ylabel("left (%)")
    upper.set_ylabel("test accuracy (%)")
    legend(upper)
    return figure


def say(result: Result) -> Said:
    found, mem = result.numbers, result.settings["mem"]
    rows = (
        (
            f">= {one['threshold']:g}",
            one["removed"],
            f"{one['fraction_left']:.1%}",
            points(one["accuracy"], "sd"),
            points(one["accuracy_random"], "sd"),
            points(one["excess"]),
        )
        for one in found["points"]
    )
    whole = points(found["accuracy"], "sd")
    lines = [f"Nothing removed: {whole}. ± is one standard deviation; of the excess, its error."]
    if (at := found["memorized"]) is None:
        lines.append(f"No example has a memorization of {mem:g} or more.")
    else:
        lines.append(
            f"{at['share']:.1%} of the examples are memorized at {mem:g} or above; their removal costs"
            f" {points(at['cost'])} points of accuracy, that of as many random ones {points(at['cost_random'])}"
            " (± standard error)."
        )
    return Said(("memorization", "removed", "left", "accuracy %", "random %", "excess cost"), rows, lines)


def report(result: Result, of: str) -> list[str]:
    found = result.numbers
    known = [one for one in found["points"] if decimal(one["excess"]["stderr"]) != "-"]
    worse = [one for one in known if one["excess"]["mean"] > 2 * one["excess"]["stderr"]]
    better = [one for one in known if one["excess"]["mean"] < -2 * one["excess"]["stderr"]]
    if len(worse) > len(known) / 2:
        verdict = (
            f"Memorized examples hurt more than random ones at {_all(worse, known)} (by more than two standard errors)."
        )
    else:
        less = f"; at {_all(better, known)} they hurt less" if better else ""
        where = f"at {_all(worse, known)}" if worse else "at no threshold"
        verdict = (
            f"{of} does not show that memorized examples hurt more than random ones: by more than two standard"
            f" errors they do {where}{less}."
        )
    lines = [verdict, ""]
    lines += ["| memorization | removed | all kept % | without them % | without random ones % | excess cost (se) | n |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for one in found["points"]:
        lines.append(
            f"| >= {one['threshold']:g} | {one['removed']:,} ({one['share']:.1%}) | {points(found['accuracy'], 'sd')} |"
            f" {points(one['accuracy'], 'sd')} | {points(one['accuracy_random'], 'sd')} | {points(one['excess'])} |"
            f" {one['excess']['n']} |"
        )
    if emptied := [one for one in found["points"] if one["emptied_classes"]]:
        counts = ", ".join(f"{len(one['emptied_classes'])} at {one['threshold']:g}" for one in emptied)
        lines += ["", f"Classes that lose all their examples: {counts}; their test examples are lost with them."]
    return lines


def _all(some: list[Point], known: list[Point]) -> str:
    if len(some) == len(known):
        return "every threshold"
    levels = ", ".join(f"{one['threshold']:g}" for one in some)
    return f"{len(some)} of {len(known)} thresholds ({levels})"
