"""Figures that are saved where the user says: the file, the line that says what it is about, pictures of examples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, picture_range, short_name, to_images
from memfluence.drawing import FORMATS, encoded, new_canvas, style
from memfluence.errors import InputError
from memfluence.store import write_whole
from memfluence.wording import count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memfluence.runs import Run


@contextmanager
def new_figure(path: Path, width: float, height: float) -> "Iterator[Figure]":
    """A figure of that many inches, saved to `path` when the block ends."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path} must end in one of {', '.join(FORMATS)}; got {path.suffix or 'no suffix'!r}.")
    with style():
        figure = new_canvas(width, height)
        yield figure
        write_whole(path, encoded(figure, path.suffix))


def about(run: "Run") -> str:
    """The data, the learner, n and t: 'digits, mlp: 1,197 training examples, 2,000 models'."""
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
