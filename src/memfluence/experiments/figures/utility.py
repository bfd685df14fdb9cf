"""Accuracy of every model with and without the high-influence examples, and where the loss comes from."""

from typing import TYPE_CHECKING

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, ORANGE, PAGE, SOFT, panels, panels_tidy
from memfluence.experiments import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_SIDES = (("all", "accuracy", "all kept", BLUE), ("without", "accuracy_without", "without S$_h$", ORANGE))


def draw(result: Result) -> "Figure":
    figure, axes = panels(result.title, PAGE, 2.5, columns=3, width_ratios=(1, 1, 1.15))
    for one, name, title in zip(
        axes[0],
        ("test", "influenced"),
        ("whole test set", f"S'$_h$: {result.numbers['influenced']['examples']:,} influenced test examples"),
    ):
        _accuracies(one, result, name)
        one.set_title(title, fontsize=8, color=INK)
    axes[0, 0].set_ylabel("test accuracy (%)")
    _loss(axes[0, 2], result)
    panels_tidy(axes)
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
            f"{100 * found['mean']:.2f}\n± {100 * found['sd']:.2f}",
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
        labels.append(f"{label}\n{100 * found['mean']:.2f} ± {100 * found['sd']:.2f}".replace("-", "−"))
    axes.axvline(0, color=SOFT, linewidth=0.8)
    axes.set_yticks(range(3), labels)
    axes.invert_yaxis()
    axes.set_xlabel("points of test accuracy (± one sd)")
    axes.set_title("what being without S$_h$ costs", fontsize=8, color=INK)
