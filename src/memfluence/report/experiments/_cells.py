"""Cells of figures that show examples: a picture, or words where the data are not pictures."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from memfluence.report._drawing import INK, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WORDS", "cell", "new_canvas", "write"]

LETTERS_PER_INCH, LINES_PER_INCH = 23, 13  # of the smallest type
WORDS = (1.3, 0.6)  # width and height of a cell of words, inches


def new_canvas(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure  # without pyplot: no window, nothing global

    return Figure(figsize=(width, height), facecolor="white")


def cell(
    figure: "Figure", x: float, top: float, side: float, pictures: Mapping[str, np.ndarray], key: str, words: str
) -> None:
    """The picture of an example in a square of `side`, or its words in a cell of `WORDS`.

    x and top in inches from the lower left corner.
    """
    if key in pictures:
        draw(figure, x, top, side, pictures[key])
        return
    width, height = WORDS
    lines = textwrap.wrap(words, int(LETTERS_PER_INCH * width), max_lines=int(LINES_PER_INCH * height), placeholder="…")
    write(figure, x, top, "\n".join(lines), INK, size=4.8)


def write(
    figure: "Figure", x: float, top: float, text: str, colour: str, *, size: float = 7.0, bold: bool = False
) -> None:
    """Text whose upper left corner is at x and top, in inches from the lower left corner of the figure."""
    width, height = figure.get_size_inches()
    weight = "bold" if bold else "normal"
    figure.text(x / width, top / height, text, color=colour, fontsize=size, weight=weight, va="top", linespacing=1.1)
