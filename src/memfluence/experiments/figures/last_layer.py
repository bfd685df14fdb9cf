"""How few examples the last layer memorizes, and how little its influences agree with those of whole networks."""

from typing import TYPE_CHECKING

import numpy as np

from memfluence.drawing import BLUE, INK, ORANGE, PAGE, SOFT, panels, panels_tidy
from memfluence.experiments import Result
from memfluence.wording import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_LOUD = "The representation has seen every training example: these linear models are not blind to what they leave out."


def draw(result: Result) -> "Figure":
    table = result.table
    figure, axes = panels(f"{result.title}\n", PAGE, 2.6, columns=3)
    figure.text(0.01, 0.925, _LOUD, color=ORANGE, fontsize=8, va="top")
    _memorized(axes[0, 0], result)
    for one, column, title in (
        (axes[0, 1], "jaccard", "Jaccard index of the pairs"),
        (axes[0, 2], "difference", "average difference of influence"),
    ):
        for quantity, label, colour in (
            ("influence", "memorized or not", BLUE),
            ("influence of memorized", "memorized ones", ORANGE),
        ):
            of = table[table["quantity"] == quantity]
            one.plot(of["threshold"], of[column], color=colour, marker="o", markersize=2.5, linewidth=1, label=label)
        one.axvline(result.settings["infl"], color=SOFT, linewidth=0.8, linestyle=":")
        one.set_ylim(0, 1.02 if column == "jaccard" else None)
        one.set_xlabel("influence at or above")
        one.set_title(title, fontsize=8, color=INK)
    axes[0, 1].legend(frameon=False, fontsize=7, title="training example", title_fontsize=7)
    panels_tidy(axes)
    return figure


def _memorized(axes: "Axes", result: Result) -> None:
    """How many training examples each side memorizes at each threshold."""
    of = result.table[result.table["quantity"] == "memorization"]
    for side, label, colour in (("network", "whole networks", BLUE), ("linear", "last layer alone", ORANGE)):
        axes.plot(of["threshold"], of[side], color=colour, marker="o", markersize=2.5, linewidth=1, label=label)
    axes.set_yscale("function", functions=(np.log1p, np.expm1))  # zero has a place
    top = max(1, int(of[["network", "linear"]].to_numpy().max()))
    ticks = [0, *(step * 10**power for power in range(9) for step in (1, 3) if step * 10**power <= top)]
    axes.set_yticks(ticks, [count(tick) for tick in ticks])
    axes.set_ylim(-0.2, 1.5 * top)
    axes.axvline(result.settings["mem"], color=SOFT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("memorization at or above")
    axes.set_title("training examples", fontsize=8, color=INK)
    axes.legend(frameon=False, fontsize=7)
