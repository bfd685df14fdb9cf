"""Agreement over thresholds: the average difference on the left, the Jaccard index on the right; chance in dashes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import COLOURS, GREY, INK, PAGE, SOFT, curve, panels, panels_tidy
from memfluence.experiments import Result
from memfluence.wording import approximate, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

MEASURES = (("difference", "average difference"), ("jaccard", "Jaccard index"))


def draw(result: Result) -> "Figure":
    lines, settings, table = result.numbers["lines"], result.settings, result.table
    anything = [line for line in lines if "any_class" in line]
    figure, axes = panels(result.title, PAGE, 4.9, rows=2, columns=2)
    for row, (quantity, level) in enumerate((("memorization", settings["mem"]), ("influence", settings["infl"]))):
        here = table[table["quantity"] == quantity]
        for column, (measure, words) in enumerate(MEASURES):
            panel = axes[row, column]
            for colour, line in zip(_colours(len(lines)), lines):
                own = here[here["compared"] == line["compared"]]
                within = own[own["same_class"].fillna(True)]
                curve(
                    panel,
                    within["threshold"],
                    within[measure],
                    within[f"{measure}_sd"],
                    colour=colour,
                    label=_legend(line),
                    marker="",
                )
                across = own[~own["same_class"].fillna(True)]
                panel.plot(across["threshold"], across[measure], color=colour, linewidth=1, linestyle=":")
                chance = here[(here["compared"] == f"by chance, {line['compared']}") & here["same_class"].fillna(True)]
                grey = GREY if len(lines) == 1 else colour
                panel.plot(chance["threshold"], chance[measure], color=grey, linewidth=1, linestyle="--")
            _frame(panel, quantity, words, level)
            own = here[~here["compared"].str.startswith("by chance, ")]
            top = 1.02 if measure == "jaccard" else 1.25 * np.nanmax(own[measure].to_numpy(), initial=0.02)
            panel.set_ylim(0, top)  # chance may leave the panel
    legend = axes[0, 1].get_legend_handles_labels()
    _key(figure, legend, dotted=bool(anything), chance=bool(result.numbers["by_chance"]["memorization"]))
    panels_tidy(axes)
    return figure


def _frame(panel: "Axes", quantity: str, measure: str, level: float) -> None:
    panel.axvline(level, color=INK, linewidth=0.6, alpha=0.6)
    panel.set_xlabel(f"{quantity} at or above")
    panel.set_ylabel(f"{measure}\n({quantity})")


def _legend(line: dict[str, Any]) -> str:
    """'resnet18: 1,020 pairs, 71.3%', as in the paper."""
    of = "two halves of one run" if line["halves"] else "with half of it"
    accuracy = percent(line["test_accuracy"]["mean"], 1)
    return f"{line['compared']}, {of}: {approximate(line['same_class'][0]['second']['mean'])} pairs, {accuracy}"


def _key(figure: "Figure", legend: tuple[list[Any], list[str]], *, dotted: bool, chance: bool) -> None:
    from matplotlib.lines import Line2D

    handles, labels = legend
    if dotted:
        handles, labels = [*handles, Line2D([], [], color=SOFT, linestyle=":")], [*labels, "pairs of any two classes"]
    if chance:
        handles, labels = (
            [*handles, Line2D([], [], color=GREY, linestyle="--")],
            [*labels, "by chance: permuted masks, pairs of one class"],
        )
    figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False, fontsize=7)


def _colours(count: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(count)]
