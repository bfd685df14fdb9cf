"""The look of all figures: colours, sizes, panels with letters, legends and captions, pictures and words of examples.

Data, n, t and settings are told in the caption below a figure, what a panel shows in its heading, what lines are in a
legend between heading and data. Memorization, influence, correlations and other shares of one have two decimals,
percent and points of accuracy one.

Matplotlib is imported when something is drawn, without pyplot: no window is opened and nothing is global.
"""

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from string import ascii_lowercase
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
    "axes.titlelocation": "left",
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "legend.columnspacing": 0.8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.labelspacing": 0.3,
    "legend.title_fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "memfluence",  # the same ids every time
    "pdf.fonttype": 42,
}
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # same run, same bytes
TINY = 16  # pixels up to which pictures are smoothed: the eye would see squares instead of a shape
LETTERS_PER_INCH, LINES_PER_INCH = 23, 13  # of the smallest type
CAPTION_LETTERS = 20  # per inch of a caption
MARGIN = 0.1  # around pictures and captions, inches
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
    """The content of a figure's file, its caption included; `suffix` is one of `FORMATS`. Call it within `style`."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    below = min(0.0, figure.get_tightbbox().y0 - MARGIN)  # where the caption ends
    content, whole = io.BytesIO(), Bbox.from_extents(0, below, width, height)
    figure.savefig(content, format=suffix[1:], dpi=200, metadata=FORMATS[suffix], bbox_inches=whole)
    return content.getvalue()


def new_canvas(width: float, height: float, caption: str) -> "Figure":
    """An empty figure of so many inches, with a caption below it that `encoded` makes room for."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    lines = textwrap.wrap(caption, int((width - 2 * MARGIN) * CAPTION_LETTERS))
    write(figure, MARGIN, 0, "\n".join(lines), INK)
    return figure


def panels(
    caption: str,
    width: float,
    height: float,
    headings: Sequence[str] = ("",),
    columns: int | None = None,
    **layout: Any,
) -> "tuple[Figure, list[Axes]]":
    """A figure with its caption, and its panels: one for each heading, with a letter where there are several."""
    columns = columns or len(headings)
    figure = new_canvas(width, height, caption)
    figure.set_layout_engine("constrained")
    axes: list[Axes] = list(figure.subplots(-(-len(headings) // columns), columns, squeeze=False, **layout).flat)
    for letter, heading, panel in zip(ascii_lowercase, headings, axes):
        panel.set_title(f"{letter}  {heading}" if len(headings) > 1 else heading)
    for panel in axes[len(headings) :]:
        panel.set_axis_off()
    return figure, axes[: len(headings)]


def note(axes: "Axes", text: str) -> None:
    """Say more about a panel's data, between its heading and them."""
    place: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 3), "textcoords": "offset points"}
    axes.annotate(text, (0, 1), **place, va="bottom", color=SOFT, fontsize=7, in_layout=False)
    _make_room(axes, 1 + text.count("\n"))


def legend(axes: "Axes", columns: int = 1, **look: Any) -> None:
    """Say what lines are, between the panel's heading and its data."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "alignment": "left"}
    shown = axes.legend(**place, ncols=columns, **look)
    shown.set_in_layout(False)
    _make_room(axes, -(-len(shown.get_texts()) // columns) + bool(look.get("title")))


def _make_room(axes: "Axes", lines: int) -> None:
    """Raise the headings of a row of panels by so many lines."""
    place = axes.get_subplotspec()
    for one in axes.figure.axes:
        own = one.get_subplotspec()
        if own is not None and place is not None and own.rowspan == place.rowspan:
            heading = one.get_title(loc="left")
            one.set_title(heading + "\n" * (lines - heading.count("\n")), linespacing=1.25)


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
    most: float = np.inf,
) -> None:
    """A line through means with a band of one standard deviation, between 0 and the `most` that there can be."""
    at, middle, band = (np.asarray(one, dtype=np.float64) for one in (x, mean, sd))
    low, high = np.clip([middle - band, middle + band], 0, most)
    axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(at, middle, color=colour, marker=marker, label=label)


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
    look: dict[str, Any] = {"color": colour, "fontsize": size, "weight": weight, "va": "top", "linespacing": 1.1}
    written = figure.text(*place, text, **look, parse_math=False)  # a price is no formula
    if room is not None and (wide := written.get_window_extent().width / figure.dpi) > room:
        written.set_fontsize(size * room / wide)


def picture(figure: "Figure", x: float, top: float, side: float, image: np.ndarray, *, smooth: bool = False) -> None:
    """A picture in a square of `side`, its pixels as squares unless it is `smooth`.

    x and top in inches from the lower left corner.
    """
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, (top - side) / height, side / width, side / height), anchor="SW")
    scaling = "bicubic" if smooth or max(image.shape[:2]) <= TINY else "nearest"
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation=scaling)
    axes.set_axis_off()


def cell(
    figure: "Figure",
    x: float,
    top: float,
    side: float,
    pictures: Mapping[str, np.ndarray],
    key: str,
    words: str,
    *,
    smooth: bool = False,
) -> None:
    """The picture of an example in a square of `side`, or its words in a cell of `WORDS` where there is no picture.

    x and top in inches from the lower left corner.
    """
    if key in pictures:
        picture(figure, x, top, side, pictures[key], smooth=smooth)
        return
    width, height = WORDS
    lines = textwrap.wrap(words, int(LETTERS_PER_INCH * width), max_lines=int(LINES_PER_INCH * height), placeholder="…")
    write(figure, x, top, "\n".join(lines), INK, size=4.8)
