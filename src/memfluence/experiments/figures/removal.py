"""Test accuracy after the removal of memorized examples, against random ones; below, what is left of the data."""

from typing import TYPE_CHECKING

from memfluence.drawing import BLUE, COLUMN, GREY, INK, ORANGE, curve, panels, panels_tidy
from memfluence.experiments import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(result: Result) -> "Figure":
    points, whole = result.numbers["points"], result.numbers["accuracy"]
    at = [one["threshold"] for one in points]
    title = result.title.replace(", memorization", ",\nmemorization")
    figure, axes = panels(title, COLUMN, 3.6, rows=2, sharex=True, height_ratios=(3, 1))
    upper, lower = axes[:, 0]
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
    lower.plot(at, [100 * one["fraction_left"] for one in points], color=INK, marker="o", markersize=3, linewidth=1)
    lower.set_ylim(0, 105)
    lower.set_yticks([0, 50, 100])
    lower.set_xticks(at, [f"{one:g}" for one in at])
    lower.set_xlabel("removed: memorization at or above")
    lower.set_ylabel("data left (%)")
    upper.set_ylabel("test accuracy (%)")
    upper.legend(frameon=False, loc="best", fontsize=7)
    panels_tidy(axes)
    return figure
