"""What figures of experiments share: their sizes, a figure with a title, and curves with a band."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.report._drawing import BLUE, GREY, INK, ORANGE, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "COLOURS",
    "COLUMN",
    "GREY",
    "INK",
    "ORANGE",
    "PAGE",
    "SOFT",
    "curve",
    "panels",
    "panels_tidy",
]

COLUMN, PAGE = 3.5, 7.0  # inches of one column of a paper, and of its whole width
GREEN, PURPLE, SKY, YELLOW = "#009e73", "#cc79a7", "#56b4e9", "#e69f00"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, INK)  # Okabe and Ito's, for one line after another


def panels(
    title: str, width: float, height: float, rows: int = 1, columns: int = 1, **layout: Any
) -> "tuple[Figure, np.ndarray]":
    """A figure with its title, and its axes (rows, columns)."""
    from matplotlib.figure import Figure  # without pyplot: no window, nothing global

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, **layout)
    figure.suptitle(title, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure, axes


def panels_tidy(axes: np.ndarray) -> None:
    """No frames above and to the right."""
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)


def curve(
    axes: "Axes",
    x: Sequence[float] | np.ndarray,
    mean: Sequence[float] | np.ndarray,
    sd: Sequence[float] | np.ndarray,
    *,
    colour: str,
    label: str,
    marker: str = "o",
) -> None:
    """A line through means with a band of one standard deviation."""
    at, middle, band = (np.asarray(one, dtype=np.float64) for one in (x, mean, sd))
    axes.fill_between(at, middle - band, middle + band, color=colour, alpha=0.2, linewidth=0)
    axes.plot(at, middle, color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=label)
