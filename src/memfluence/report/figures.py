"""Figures for papers: memorized training examples with the test examples they carry, and the histogram.

Vector or PNG by the file's suffix. Sizes are in inches at which the text is 8 to 9 points, so a figure goes into a page
unscaled; the colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, to_images
from memfluence.errors import InputError, StoreError
from memfluence.findings import Pairs
from memfluence.report._contents import CARRIED, INFLUENCE, MEMORIZED
from memfluence.report._groups import Group, groups_of
from memfluence.report._histogram import histogram
from memfluence.report._numbers import count, error, value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memfluence.api import Run

__all__ = ["histogram_figure", "pairs_figure"]

ORANGE, BLUE, GREY, INK, SOFT = "#d55e00", "#0072b2", "#b9b3a9", "#1f1e1c", "#66625c"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.edgecolor": SOFT,
    "text.color": INK,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "memfluence",  # the same ids every time
    "pdf.fonttype": 42,
}
SUFFIXES = (".png", ".svg", ".pdf")


def pairs_figure(run: "Run", dataset: Dataset, path: Path, rows: int = 5, *, keep: float | None = None) -> Path:
    """The paper's figures 4 to 6: a memorized training example in each row, and the test examples that it carries.

    The rows are spread evenly over all training examples in high-influence pairs, in the order of their highest
    influence, so that the strongest are not the only ones seen. Gives `path`.
    """
    pairs = run.find_pairs(MEMORIZED, INFLUENCE, keep=keep)
    groups = groups_of(pairs, rows, spread=True)
    if not groups:
        raise InputError(f"There is nothing to draw: {pairs.warning}")
    images = {
        "train": _images(dataset, dataset.x_train, pairs.train_index),
        "test": _images(dataset, dataset.x_test, pairs.test_index),
    }
