"""Toy: the mean memorization of each class, as an example of an experiment that trains nothing."""

from typing import TYPE_CHECKING

import numpy as np

from memfluence.drawing import BLUE, COLUMN, panels
from memfluence.experiments._result import Result, Said, about, check_trials, decimal, spread
from memfluence.runs import Run
from memfluence.wording import class_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "Which classes are memorized?"


def summarize(run: Run, *, keep: float | None = None) -> Result:
    """Mean memorization of the training examples of each class."""
    check_trials(run)
    value, codes = run.estimate_memorization(keep).value, run.label_codes[0]
    names = run.info.dataset["class_names"]
    rows = [{"class": name, **spread(value[codes == code])} for code, name in enumerate(names)]
    return Result("toy", about(run.info), {"memorization": spread(value)}, rows, {"keep": keep})


def draw(result: Result) -> "Figure":
    """A bar for each class, with the standard error of its mean."""
    figure, axes = panels(result.title, COLUMN, 2.5)
    table, panel = result.table, axes[0, 0]
    panel.barh(np.arange(len(table)), table["mean"], xerr=table["stderr"], color=BLUE)
    panel.set_yticks(np.arange(len(table)), [class_name(name) for name in table["class"]])
    panel.set_xlabel("mean memorization")
    return figure


def say(result: Result) -> Said:
    columns = ["class", "mean", "stderr"]
    rows = ((one[0], decimal(one[1]), decimal(one[2])) for one in result.table[columns].itertuples(index=False))
    return Said(columns, rows)
