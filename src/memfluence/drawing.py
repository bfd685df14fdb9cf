"""The look of all figures: colours, sizes, panels with curves, pictures and words of examples, the bytes of the file.

Matplotlib is imported when something is drawn, without pyplot: no window is opened and nothing is global.
"""

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORANGE, BLUE, GREY, INK, SOFT = "#d55e00", "#0072b2", "#918b81", "#1f1e1c", "#66625c"
GREEN, PURPLE, SKY, YELLOW = "#009e73", "#cc79a7", "#56b4e9", "#e69f00"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, INK)  # Okabe and Ito's, for one line after another
COLUMN, PAGE = 3.5, 7.0  # inches of one column of a paper, and of its whole width
STYLE: dict[str, Any] = {
    "font.size": 8,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "memfluence",  # the same ids every time
    "pdf.fonttype": 42,
}
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # same run, same bytes
TINY = 16  # pixels up to which pictures are smoothed: the eye would see squares instead of a shape
LETTERS_PER_INCH, LINES_PER_INCH = 23, 13  # of the smallest type
WORDS = (1.3, 0.6)  # width and height of a cell of words, inches


@contextmanager
def style() -> Iterator[None]:
    """Draw with our settings of matplotlib, not the reader's own, so that the same run gives the same figure."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(STYLE)
        yield


def encoded(figure: "Figure", suffix: str) -> bytes:
    """The content of a figure's file; `suffix` is one of `FORMATS`. Call it within `style`."""
    content = io.BytesIO()
    figure.savefig(content, format=suffix[1:], dpi=200, metadata=FORMATS[suffix])
    return content.getvalue()


def new_canvas(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white")


def panels(
    title: str, width: float, height: float, rows: int = 1, columns: int = 1, **layout: Any
) -> "tuple[Figure, np.ndarray]":
    """A figure with its title, and its axes (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, **layout)
    figure.suptitle(title, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure, axes


def axis_of_counts(axes: "Axes", most: float) -> None:
    """A logarithmic axis of counts, on which zero has a place."""
    axes.set_yscale("function", functions=(np.log1p, np.expm1))
    ticks = [0, *(step * 10**power for power in range(9) for step in (1, 3) if step * 10**power <= most)]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])


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


def write(
    figure: "Figure",
    x: float,
    top: float,
    text: str,
    colour: str,
    bold: bool = False,
    *,
    size: float = 7.0,
    room: float | None = None,
) -> None:
    """Text whose upper left corner is at x and top, in inches from the lower left corner of the figure.

    It is smaller where it would not fit into so much `room`.
    """
    width, height = figure.get_size_inches()
    weight = "bold" if bold else "normal"
    place = x / width, top / height
    written = figure.text(*place, text, color=colour, fontsize=size, weight=weight, va="top", linespacing=1.1)
    if room is not None and (wide := written.get_window_extent().width / figure.dpi) > room:
        written.set_fontsize(size * room / wide)


def picture(figure: "Figure", x: float, top: float, side: float, image: np.ndarray) -> None:
    """A picture in a square of `side`; x and top in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, (top - side) / height, side / width, side / height), anchor="SW")
    scaling = "bicubic" if max(image.shape[:2]) <= TINY else "nearest"
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation=scaling)
    axes.set_axis_off()


def cell(
    figure: "Figure", x: float, top: float, side: float, pictures: Mapping[str, np.ndarray], key: str, words: str
) -> None:
    """The picture of an example in a square of `side`, or its words in a cell of `WORDS` where there is no picture.

    x and top in inches from the lower left corner.
    """
    if key in pictures:
        picture(figure, x, top, side, pictures[key])
        return
    width, height = WORDS
    lines = textwrap.wrap(words, int(LETTERS_PER_INCH * width), max_lines=int(LINES_PER_INCH * height), placeholder="…")
    write(figure, x, top, "\n".join(lines), INK, size=4.8)
