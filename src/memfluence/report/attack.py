"""The receiver operating characteristic of a membership attack, on logarithmic scales: what counts is the left end."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memfluence.drawing import BLUE, GREY, ORANGE, SOFT
from memfluence.findings import Attack
from memfluence.report._drawing import about, new_figure
from memfluence.wording import value

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["attack_figure"]


def attack_figure(run: "Run", found: Attack, path: Path) -> Path:
    """True against false positive rate of the online and the offline attack, with 95% bands. Gives `path`."""
    with new_figure(path, 4.6, 4.1) as figure:
        axes = figure.add_axes((0.15, 0.13, 0.81, 0.73))
        least = 1 / max(10, found.online.non_members)
        axes.plot([least, 1], [least, 1], color=GREY, linewidth=1, linestyle=":", label="guessing")
        for name, roc, colour in (("online", found.online, ORANGE), ("offline", found.offline, BLUE)):
            floor = np.maximum([roc.lower, roc.upper, roc.found], least)  # 0 has no place on a logarithmic scale
            axes.fill_between(roc.rates, floor[0], floor[1], color=colour, alpha=0.2, linewidth=0)
            axes.plot(roc.rates, floor[2], color=colour, label=f"{name}, area {value(roc.auc.value, 3)}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(least, 1)
        axes.set_ylim(least, 1)
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
        figure.text(0.15, 0.95, about(run), color=SOFT)
        figure.text(0.15, 0.905, f"{found.targets} target models, {found.shadows} shadow models each", color=SOFT)
    return path
