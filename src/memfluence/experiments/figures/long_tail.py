"""The theory in one look: the tail, who is memorized, what that buys, and what limits on memorization cost.

Titles ask, and the panels answer: with another learner the answer may be another.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    ORANGE,
    PAGE,
    SOFT,
    curve,
    panels,
    panels_tidy,
)
from memfluence.experiments import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_GREEN = COLOURS[2]
_VARIED = {
    "base": ("the world of the other panels", INK, "*"),
    "exponent": ("other Zipf exponents", ORANGE, "o"),
    "subpopulations": ("other numbers of subpopulations", BLUE, "s"),
    "n_train": ("other training set sizes", _GREEN, "^"),
}


def draw(result: Result) -> "Figure":
    clipping = result.numbers["clipping"]
    figure, axes = panels(result.title, PAGE, 7.6 if clipping else 5.2, rows=3 if clipping else 2, columns=2)
    base = result.numbers["worlds"][0]
    _tail(axes[0, 0], result.numbers["tail"], base)
    _sizes(axes[0, 1], base)
    _losses(axes[1, 0], result.numbers["worlds"])
    _stopping(axes[1, 1], result.numbers["early_stopping"])
    if clipping:
        _clips(axes[2, 0], [one for one in clipping if not one["noise"]])
        _noises(axes[2, 1], clipping, result.settings["noise_clip"])
    panels_tidy(axes)
    return figure


def _title(axes: "Axes", text: str) -> None:
    axes.set_title(text, fontsize=8, color=INK, loc="left", weight="bold")


def _tail(axes: "Axes", tail: dict[str, Any], base: dict[str, Any]) -> None:
    frequency, seen = np.array(tail["frequency"]), np.array(tail["seen"])
    rank = np.arange(1, len(seen) + 1)
    axes.plot(rank, base["n_train"] * frequency, color=SOFT, linewidth=0.8, label="expected")
    for chosen, label, colour in (
        (seen > 1, f"seen more than once: {int((seen > 1).sum())}", BLUE),
        (seen == 1, f"seen once: {base['singletons']} ({base['test_share']:.1%} of test data)", ORANGE),
        (seen == 0, f"never seen: {base['never_seen']}", GREY),
    ):
        axes.plot(rank[chosen], seen[chosen], ".", color=colour, markersize=3.5, label=label)
    axes.set_xscale("log")
    axes.set_yscale("function", functions=(np.log1p, np.expm1))  # zero has a place
    ticks = [0, *(step * 10**power for power in range(7) for step in (1, 3) if step * 10**power <= seen.max())]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_ylim(-0.2, 2 * max(1, seen.max()))
    axes.set_xlabel("subpopulations, the most frequent first")
    axes.set_ylabel("training examples")
    axes.legend(frameon=False, fontsize=7, loc="upper right")
    _title(axes, "1  How often is each subpopulation seen?")


def _sizes(axes: "Axes", base: dict[str, Any]) -> None:
    sizes = [one for one in base["by_size"] if one["memorization"]["n"]]
    means, errors = ([one["memorization"][key] for one in sizes] for key in ("mean", "sd"))
    colours = [ORANGE if one["size"] == "1" else BLUE for one in sizes]
    axes.bar(range(len(sizes)), means, yerr=np.nan_to_num(errors), color=colours, ecolor=SOFT, capsize=2, width=0.75)
    labels = [f"{one['size']}\n(n={one['memorization']['n']})" for one in sizes]
    axes.set_xticks(range(len(sizes)), labels, fontsize=7)
    axes.set_xlabel("training examples that the subpopulation has")
    axes.set_ylabel("memorization (± one sd)")
    text = (
        f"of the errors on test examples\nof a subpopulation seen once,\nits one training example\n"
        f"explains {base['explained']:.1%} ± {base['explained_stderr']:.1%}"
    )
    axes.text(0.98, 0.95, text, transform=axes.transAxes, ha="right", va="top", fontsize=7, color=ORANGE)
    _title(axes, "2  Who is memorized?")


def _losses(axes: "Axes", worlds: list[dict[str, Any]]) -> None:
    most = 100 * max(one["predicted_loss"] for one in worlds) * 1.1
    axes.plot([0, most], [0, most], color=SOFT, linewidth=0.8, linestyle=":", label="theory, if one example is enough")
    for varied, (label, colour, marker) in _VARIED.items():
        of = [one for one in worlds if one["varied"] == varied]
        if not of:
            continue
        x = [100 * one["predicted_loss"] for one in of]
        for key, filled in (("lost", True), ("lost_random", False)):
            mean, error = ([100 * one[key][kind] for one in of] for kind in ("mean", "stderr"))
            axes.errorbar(
                x,
                mean,
                error,
                color=colour,
                marker=marker,
                markersize=7 if marker == "*" else 4,
                markerfacecolor=colour if filled else "white",
                linestyle="none",
                capsize=1.5,
                label=label if filled else None,
            )
    axes.plot([], [], "o", color=SOFT, markerfacecolor="white", markersize=4, label="as many random ones removed")
    axes.axhline(0, color=SOFT, linewidth=0.5)
    axes.set_xlabel("test data seen once × (1 − chance)  (%)")
    axes.set_ylabel("accuracy lost without them (points)")
    axes.set_ylim(top=1.6 * max(most, axes.get_ylim()[1] / 1.05))  # room for the legend
    axes.legend(frameon=False, fontsize=6.5, loc="upper left")
    _title(axes, "3  What does being without those seen once cost?")


def _stopping(axes: "Axes", stopped: list[dict[str, Any]]) -> None:
    at = [one["epochs"] for one in stopped]
    _accuracies(axes, stopped, at, [str(one) for one in at])
    if at:
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    axes.set_xlabel("epochs of training (early stopping)")
    _title(axes, "4  Whom does early stopping cost?")


def _clips(axes: "Axes", clipped: list[dict[str, Any]]) -> None:
    largest = max(one["clip"] for one in clipped)
    at = [one["clip"] or 2.5 * largest for one in clipped]  # no clipping has a place on the right
    _accuracies(axes, clipped, at, [f"{one['clip']:g}" if one["clip"] else "none" for one in clipped])
    axes.set_xlabel("largest norm of an example's gradient (clipping)")
    _title(axes, "5  Whom does clipping gradients cost?")


def _noises(axes: "Axes", clipping: list[dict[str, Any]], clip: float) -> None:
    smallest = min((one["noise"] for one in clipping if one["noise"]), default=1.0)
    noisy = [one for one in clipping if one["clip"] == clip]
    at = [one["noise"] or smallest / 2.5 for one in noisy]  # and so has no noise
    _accuracies(axes, noisy, at, [f"{one['noise']:g}" if one["noise"] else "none" for one in noisy])
    axes.invert_xaxis()  # as in the other panels, less is memorized on the left
    axes.set_xlabel(f"noise on gradients clipped at {clip:g}, in multiples of that")
    _title(axes, "6  Whom does noise on gradients cost?")


def _accuracies(axes: "Axes", limited: list[dict[str, Any]], at: list[float], labels: list[str]) -> None:
    """On what was seen once and on the rest, by where each limit has its place; the strictest one is on the left."""
    order = np.argsort(at)
    for key, label, colour in (
        ("test_often", "test, seen more than once", BLUE),
        ("singletons", "training, seen once", ORANGE),
        ("test_once", "test, seen once", _GREEN),
    ):
        mean, sd = (np.array([100 * one[key][kind] for one in limited])[order] for kind in ("mean", "sd"))
        curve(axes, np.array(at)[order], mean, sd, colour=colour, label=label)
    if at:
        axes.set_xscale("log")
        axes.set_xticks(at, labels)
        axes.minorticks_off()
    axes.set_ylim(0, 103)
    axes.set_ylabel("accuracy (%)")
