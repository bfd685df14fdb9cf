"""Flipped labels: can useful memorized examples be told from useless ones? (for `long_tail`)

The theory (Feldman 2019). Useful to memorize is the first example of a subpopulation: the only one with the right
label. Useless is an example whose label is flipped. Both have to be memorized to be fitted. Where nothing tells one
from the other, whoever refuses to memorize the useless ones loses the useful ones with them.

What is measured, in several worlds for each share of flipped labels:

- for each score, the receiver operating characteristic of calling examples useless, from the highest score on: the
  share of the useless called so over the share of the useful called so. The area below it is the probability that a
  useless example has a higher score than a useful one, ties counted half (Mann and Whitney's U): 0.5 is a guess.
  Scores are turned so that common sense expects more than 0.5. `alone` is the area among those examples, right or
  flipped, that are the only ones of their subpopulation: nothing in the training set speaks for or against their
  labels, so whatever score is computed from it, 0.5 is to be expected. Where models are right on all that they keep,
  never on a flipped example that they do not, and by chance on a useful one, memorization has 0.5 + chance / 2;
- the accuracy that is lost when a share of the most memorized examples is dropped, beside as many random ones, and
  beside the flipped ones alone, which nobody could know.

Variance. Means and standard errors are over worlds, each with data of its own.

Failure cases. "Largest" and "mean influence" are influence on test examples: they use labeled data that models are not
trained on. Subpopulations without a test example have no influence to find. A world without useful or without useless
examples has no area, and is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memfluence.datasets import Dataset
from memfluence.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, SOFT, YELLOW, curve, legend
from memfluence.experiments._limits import dropping, markdown
from memfluence.experiments._result import Spread, decimal, difference, points, spread
from memfluence.experiments._worlds import Campaign, accuracies, times_seen
from memfluence.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORES = {  # and whether a high one is to mean "useless"
    "memorization": ("memorization", True),
    "held_out_accuracy": ("held-out accuracy", False),
    "kept_accuracy": ("kept accuracy", False),
    "margin_memorization": ("memorization of margins", True),
    "held_out_margin": ("held-out margin", False),
    "kept_margin": ("kept margin", False),
    "mislabel": ("mislabel score", True),
    "mean_influence": ("mean influence on test", False),
    "largest_influence": ("largest influence on test", False),
}
DRAWN = {
    "memorization": ORANGE,
    "held_out_accuracy": SKY,
    "kept_margin": BLUE,
    "mislabel": PURPLE,
    "largest_influence": GREEN,
}
RATES = np.linspace(0, 1, 41)  # shares of the useful, at which curves are averaged
_LINES: tuple[tuple[str, Literal["-", ":"], bool], ...] = (("area", "-", True), ("alone", ":", False))
_CURVE: dict[str, Literal["mean", "stderr"]] = {"curve": "mean", "curve_stderr": "stderr"}
_STYLES: dict[str, Literal["-", ":"]] = {"memorized": "-", "random": ":"}
_COLOURS = (INK, SKY, BLUE, ORANGE, PURPLE, YELLOW, GREEN)  # of shares of flipped labels


def useful_and_useless(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training examples that are the only right ones of their subpopulation, those that are flipped, and those, right
    or flipped, that are the only ones of their subpopulation: (n_train,) bool each.
    """
    of, flipped = data.attributes["train_subpopulation"], data.attributes["train_flipped"]
    return ~flipped & (times_seen(data)[of] == 1), flipped, np.bincount(of)[of] == 1


def scores(run: Run) -> dict[str, np.ndarray]:
    """Scores of training examples, (n_train,) each, high where an example is expected to be useless."""
    found, ranked = run.estimate_memorization(), run.find_mislabels(margins=False)  # the margins have a score each
    influence = run.influence_estimates().block()  # (n_train, n_test)
    mislabel = np.empty(run.info.n_train)
    mislabel[ranked.index] = ranked.score
    values = {
        "memorization": found.value,
        "held_out_accuracy": found.accuracy_out,
        "kept_accuracy": found.accuracy_in,
        "mislabel": mislabel,
        "mean_influence": influence.mean(axis=1),
        "largest_influence": influence.max(axis=1),
    }
    if "margin" in run.info.record:
        table = run.memorization(outcome="margin")
        names = {"margin_memorization": "memorization", "held_out_margin": "mean_out", "kept_margin": "mean_in"}
        values |= {name: table[column].to_numpy() for name, column in names.items()}
    return {name: values[name] if high else -values[name] for name, (_, high) in SCORES.items() if name in values}


def receiver(useful: np.ndarray, useless: np.ndarray, score: np.ndarray) -> tuple[float, np.ndarray]:
    """The area below the curve, and the share of the useless that is called so at each of `RATES`; or NaN."""
    from sklearn.metrics import roc_curve

    known = (useful | useless) & ~np.isnan(score)
    if not (useful & known).any() or not (useless & known).any():
        return float("nan"), np.full(len(RATES), np.nan)
    wrong, right, _ = roc_curve(useless[known], score[known])
    return float(np.trapezoid(right, wrong)), np.interp(RATES, wrong, right)


def flips(campaign: Campaign, worlds: Mapping[float, Sequence[Mapping[str, Run]]]) -> list[dict[str, Any]]:
    """What each share of flipped labels does, from the runs of its worlds."""
    return [_of_share(campaign, flip, runs) for flip, runs in worlds.items()]


def _of_share(campaign: Campaign, flip: float, worlds: Sequence[Mapping[str, Run]]) -> dict[str, Any]:
    groups = [useful_and_useless(world["estimate"].dataset()) for world in worlds]
    told = [_told_apart(world["estimate"], *group) for world, group in zip(worlds, groups)] if flip else [{}]
    by_score: dict[str, dict[str, Any]] = {}
    for name in told[0]:
        area, alone, curve = zip(*(one[name] for one in told))
        by_score[name] = {"area": _over(area), "alone": _over(alone)}
        if name in DRAWN:
            points_of = [_over(one) for one in np.transpose(curve)]  # at each of `RATES`
            by_score[name] |= {key: [one[of] for one in points_of] for key, of in _CURVE.items()}
    dropped = [_dropped(campaign, world, *group[:2]) if "drop" in world else {} for world, group in zip(worlds, groups)]
    return {
        "flip": flip,
        "worlds": len(worlds),
        "useful": _over(useful.sum() for useful, _, _ in groups),
        "useless": _over(useless.sum() for _, useless, _ in groups),
        "useless_alone": _over((useless & alone).sum() for _, useless, alone in groups),
        "scores": by_score,
        "dropped": [
            {
                "what": what,
                "share": share,
                **{name: _over(one[what, share][name] for one in dropped) for name in numbers},
            }
            for (what, share), numbers in dropped[0].items()
        ],
    }


def _told_apart(
    run: Run, useful: np.ndarray, useless: np.ndarray, alone: np.ndarray
) -> dict[str, tuple[float, float, np.ndarray]]:
    """Of each score the area, that among those that are alone, and the curve."""
    found = {}
    for name, score in scores(run).items():
        area, curve = receiver(useful, useless, score)
        found[name] = area, receiver(useful & alone, useless & alone, score)[0], curve
    return found


def _dropped(
    campaign: Campaign, runs: Mapping[str, Run], useful: np.ndarray, useless: np.ndarray
) -> dict[tuple[str, float], dict[str, float]]:
    """By what is dropped: the accuracy lost, and which share of the useful and of the useless examples is gone."""
    estimate = runs["estimate"]
    plan = dropping(campaign, estimate.dataset(), estimate.estimate_memorization().value)
    whole = accuracies(runs["drop"], plan.rows(arm="all"))
    groups, found = {"useful": useful, "useless": useless}, {}
    for what, share in dict.fromkeys((one["arm"], one["share"]) for one in plan.purposes if one["arm"] != "all"):
        rows = plan.rows(arm=what, share=share)
        less, away = accuracies(runs["drop"], rows), ~plan.masks[rows]
        lost = {part: difference(whole[part], less[part])["mean"] for part in ("test", "test_once", "test_often")}
        gone = {name: spread(away[:, which].ravel())["mean"] for name, which in groups.items()}
        found[what, share] = {f"lost_{part}": value for part, value in lost.items()}
        found[what, share] |= {f"{name}_gone": value for name, value in gone.items()}
    return found


def _over(values: Iterable[float]) -> Spread:
    """Mean and error over the worlds that have a value."""
    known = np.array([float(one) for one in values])
    return spread(known[~np.isnan(known)])


def middle_share(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What a middle share of flipped labels does."""
    flipped = [one for one in found if one["flip"]]
    return flipped[len(flipped) // 2]


def draw_curves(axes: "Axes", found: Sequence[Mapping[str, Any]]) -> None:
    """The curves at a middle share of flipped labels, with bands of one standard error over worlds."""
    one = middle_share(found)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=":")
    for name, colour in DRAWN.items():
        if name in one["scores"]:
            label = f"{SCORES[name][0]}: {decimal(one['scores'][name]['area']['mean'], 2)}"
            mean, error = (np.array(one["scores"][name][key]) for key in _CURVE)
            curve(axes, RATES, mean, error, colour=colour, label=label, marker="", most=1)
    axes.set_xlabel("share of the useful that is called useless")
    axes.set_ylabel("share of the useless that is found")
    axes.set_ylim(0, 1.02)
    legend(axes, 2)


def draw_areas(axes: "Axes", found: Sequence[Mapping[str, Any]]) -> None:
    """Areas over the share of flipped labels, of all and of those that are alone."""
    flipped = [one for one in found if one["flip"]]
    at = [100 * one["flip"] for one in flipped]
    for name, colour in DRAWN.items():
        for key, style, filled in _LINES:
            areas = [one["scores"][name][key] for one in flipped if name in one["scores"]]
            if areas:
                axes.errorbar(
                    at,
                    [one["mean"] for one in areas],
                    [one["stderr"] for one in areas],
                    color=colour,
                    linestyle=style,
                    linewidth=1,
                    marker="o",
                    markersize=3.5,
                    markerfacecolor=colour if filled else "white",
                )
    axes.axhline(0.5, color=SOFT, linewidth=0.5)
    axes.set_xticks(at, [f"{one:g}" for one in at])
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("flipped labels (%)")
    axes.set_ylabel("area below the curve")


def draw_lost(axes: "Axes", found: Sequence[Mapping[str, Any]], part: str) -> None:
    """What dropping costs on a part of the test data, a line for each share of flipped labels."""
    for one, colour in zip(found, _COLOURS):
        for what, style in _STYLES.items():
            some = [each for each in one["dropped"] if each["what"] == what]
            mean, error = ([100 * each[f"lost_{part}"][key] for each in some] for key in ("mean", "stderr"))
            at = [100 * each["share"] for each in some]
            label = f"{one['flip']:.0%} flipped" if what == "memorized" else None
            axes.errorbar(
                at, mean, error, color=colour, linestyle=style, linewidth=1, marker="o", markersize=2.5, label=label
            )
        for each in one["dropped"]:
            if each["what"] == "flipped":
                axes.plot(100 * each["share"], 100 * each[f"lost_{part}"]["mean"], "*", color=colour, markersize=8)
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.set_xlabel("most memorized examples dropped (%)")
    axes.set_ylabel("points of accuracy lost")
    legend(axes, 2)


def _area(found: Mapping[str, Any]) -> str:
    mean, error = decimal(found["mean"]), decimal(found["stderr"])
    return mean if "-" in (mean, error) else f"{mean} ± {error}"


def say_flips(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each share of flipped labels."""
    lines = []
    for one in found:
        if one["flip"]:
            told = {SCORES[name][0]: one["scores"][name]["area"] for name in DRAWN if name in one["scores"]}
            lines.append(
                f"{one['flip']:.0%} of the labels flipped: area of telling them from useful memorized examples (0.5: a"
                f" guess) by {', '.join(f'{words} {_area(area)}' for words, area in told.items())}"
            )
    return lines


def report_flips(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What can be told apart, and what dropping costs: two tables."""
    flipped = [one for one in found if one["flip"]]
    if not flipped:
        return []
    areas = [
        [
            SCORES[name][0] + ("" if SCORES[name][1] else ", low"),
            *(_area(one["scores"][name][key]) for key in ("area", "alone") for one in flipped),
        ]
        for name in flipped[0]["scores"]
    ]
    costs = [
        [f"{one['flip']:.0%}", *row]
        for one in found
        for row in _costs(one["dropped"], one["flip"] or flipped[0]["flip"])
    ]
    return [
        "",
        "Useful memorized examples (the only right ones of their subpopulation) against useless ones (flipped labels):"
        " the area below the receiver operating characteristic of each score, 0.5 for a guess (± standard error over"
        f" {flipped[0]['worlds']} worlds). 'Alone' is among those that are the only ones of their subpopulation:"
        " nothing in the training set can say whether their labels are right.",
        "",
        *markdown(
            ["score", *(f"{one['flip']:.0%} {words}" for words in ("flipped", "alone") for one in flipped)], areas
        ),
        "",
        "Points of accuracy lost (± standard error over worlds) when the most memorized examples are dropped, as many"
        " random ones, or the flipped ones alone:",
        "",
        *markdown(["flipped", "dropped", "useless gone %", "useful gone %", "all", "seen once", "seen more"], costs),
    ]


def _costs(dropped: Sequence[Mapping[str, Any]], share: float) -> list[list[str]]:
    """A row for each way of dropping, at the share that is nearest to this one."""
    rows = []
    for what, words in (("memorized", "most memorized"), ("random", "random"), ("flipped", "the flipped")):
        some = [one for one in dropped if one["what"] == what]
        if some:
            one = min(some, key=lambda each: abs(each["share"] - share))
            gone = [points(one[f"{name}_gone"], digits=0) for name in ("useless", "useful")]
            lost = [points(one[f"lost_{part}"], digits=1) for part in ("test", "test_once", "test_often")]
            rows.append([f"{one['share']:.0%}, {words}", *gone, *lost])
    return rows
