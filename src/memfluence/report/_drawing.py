"""What all figures share: colours, the file that is written, what a figure is about, pictures of examples."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, picture_range, to_images
from memfluence.errors import InputError
from memfluence.report._wording import count, short_name
from memfluence.store import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memfluence.runs import Run

__all__ = ["BLUE", "GREY", "INK", "ORANGE", "SOFT", "about", "draw", "new_figure", "pictures", "save", "style"]

TINY = 16  # pixels up to which pictures are smoothed: the eye would see squares instead of a shape
ORANGE, BLUE, GREY, INK, SOFT = "#d55e00", "#0072b2", "#918b81", "#1f1e1c", "#66625c"
STYLE: dict[str, Any] = {
    "font.size": 8,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "memfluence",  # the same ids every time
    "pdf.fonttype": 42,
}
METADATA = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # same run, same bytes


@contextmanager
def style() -> Iterator[None]:
    """Our settings of matplotlib, not the reader's own, so that the same run gives the same figure."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(STYLE)
        yield


def save(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the path's suffix; within `style`."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=200, metadata=METADATA[path.suffix])
    write_whole(path, content.getvalue())


@contextmanager
def new_figure(path: Path, width: float, height: float) -> "Iterator[Figure]":
    """A figure of that many inches, saved to `path` when the block ends."""
    from matplotlib.figure import Figure  # without pyplot: no window, nothing global

    if path.suffix not in METADATA:
        raise InputError(f"{path} must end in one of {', '.join(METADATA)}; got {path.suffix or 'no suffix'!r}.")
    with style():
        figure = Figure(figsize=(width, height), facecolor="white")
        yield figure
        save(figure, path)


def about(run: "Run") -> str:
    """What the figure is about, n and t included."""
    learner = (run.info.learner or {}).get("name")
    name = short_name(str(run.info.dataset["name"]))
    what = ", ".join(part for part in (name, learner) if part)
    return f"{what}{': ' if what else ''}{count(run.info.n_train)} training examples, {count(len(run.trials))} models"


def pictures(dataset: Dataset, inputs: Any, rows: Sequence[int]) -> dict[int, np.ndarray]:
    """Pictures of some examples by index, (h, w) or (h, w, 3) uint8 each."""
    shown_range = picture_range(dataset.x_train, dataset.value_range)
    images = to_images(inputs, shown_range, np.array(rows))
    if images is None:
        raise InputError(f"{dataset.name} holds no images to draw; 'memfluence report' shows what its inputs are.")
    return dict(zip(rows, images))


def draw(figure: "Figure", x: float, top: float, side: float, image: np.ndarray) -> None:
    """A picture in a square of `side`; x and top in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, (top - side) / height, side / width, side / height), anchor="SW")
    scaling = "bicubic" if max(image.shape[:2]) <= TINY else "nearest"
    axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation=scaling)
    axes.set_axis_off()
