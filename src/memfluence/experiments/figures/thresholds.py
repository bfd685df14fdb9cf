"""The Jaccard index of two halves over thresholds, the index to reach, and the thresholds proposed."""

from typing import TYPE_CHECKING

from memfluence.drawing import BLUE, GREY, INK, ORANGE, PAGE, curve, panels, panels_tidy
from memfluence.experiments import Result
from memfluence.wording import approximate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]


def draw(result: Result) -> "Figure":
    numbers, table = result.numbers, result.table
    figure, axes = panels(result.title, PAGE, 2.5, columns=2)
    for panel, quantity, proposed in zip(axes[0], ("memorization", "influence"), (numbers["mem"], numbers["infl"])):
        here = table[table["quantity"] == quantity]
        own, chance = (here[here["compared"] == which] for which in ("two halves", "by chance"))
        curve(panel, own["threshold"], own["jaccard"], own["jaccard_sd"], colour=BLUE, label="two halves", marker="")
        if len(chance):
            panel.plot(chance["threshold"], chance["jaccard"], color=GREY, linestyle="--", label="by chance")
        panel.axhline(numbers["jaccard"], color=INK, linewidth=0.6, linestyle=":")
        if proposed is not None:
            at = numbers["at"][quantity]
            panel.axvline(proposed, color=ORANGE, linewidth=1)
            said = f" {proposed:g}: {approximate((at['first'] + at['second']) / 2)} in each half"
            right = bool(proposed > own["threshold"].iloc[len(own) // 2])
            panel.text(proposed, 0.04, said + " " * right, color=ORANGE, ha="right" if right else "left")
        else:
            panel.text(0.98, 0.04, "none will do", color=ORANGE, ha="right", transform=panel.transAxes)
        panel.set_ylim(0, 1.02)
        panel.set_xlabel(f"{quantity} at or above")
        panel.set_ylabel("Jaccard index")
        panel.legend(frameon=False, fontsize=7, loc="best")
    panels_tidy(axes)
    return figure
