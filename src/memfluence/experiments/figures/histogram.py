"""How many selected pairs have which influence, and how many of them permuted masks would give."""

from typing import TYPE_CHECKING

import numpy as np

from memfluence.drawing import BLUE, GREY, INK, SOFT, panels, panels_tidy
from memfluence.experiments import Result
from memfluence.experiments.histogram import STRONG
from memfluence.wording import approximate, count, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

WIDTH = 6.2


def draw(result: Result) -> "Figure":
    numbers, table = result.numbers, result.table
    figure, axes = panels(result.title.replace("; ", ";\n"), WIDTH, 3.0)
    panel = axes[0, 0]
    left, width = table["from"].to_numpy(), (table["to"] - table["from"]).to_numpy()
    panel.bar(left, table["pairs"], width, align="edge", color=BLUE, edgecolor="white", linewidth=0.5, label="pairs")
    by_chance = numbers["by_chance"]
    if by_chance["n"]:
        mean, sd = table["by_chance"].to_numpy(), np.nan_to_num(table["by_chance_sd"].to_numpy())
        edges = np.append(left, left[-1] + width[-1])
        panel.stairs(mean, edges, color=INK, linewidth=1.1, label=f"by chance ({by_chance['n']} permutations, ± sd)")
        low, high = np.repeat(np.maximum(mean - sd, 0), 2), np.repeat(mean + sd, 2)
        panel.fill_between(np.repeat(edges, 2)[1:-1], low, high, color=GREY, alpha=0.5, linewidth=0)
    panel.set_yscale("symlog", linthresh=1, linscale=0.3)  # one pair among thousands can still be seen
    panel.set_ylim(0)
    last = np.flatnonzero(table["pairs"].to_numpy())[-1]
    panel.set_xlim(left[0], min(1.0, left[last] + 3 * width[0]))
    panel.set_xlabel("influence")
    panel.set_ylabel("pairs (log scale)")
    panel.yaxis.set_major_formatter(lambda value, _: count(value))
    panel.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), borderaxespad=0)
    said = [
        f"{count(numbers['pairs'])} pairs"
        + (f", {approximate(by_chance['mean'])} by chance" if by_chance["n"] else ""),
        f"{count(numbers['train_examples'])} training examples",
        f"{count(numbers['test_examples'])} test examples ({percent(numbers['test_share'], 2)})",
        f"{count(numbers['single_test_examples'])} of them in one pair only",
    ]
    if result.settings["infl"] < STRONG:
        said.append(f"{percent(numbers['share_below_strong'], 1)} of influences below {STRONG:g}")
    text = "\n".join(said)
    panel.text(1.02, 0.78, text, transform=panel.transAxes, va="top", color=SOFT, fontsize=7, linespacing=1.5)
    panels_tidy(axes)
    return figure
