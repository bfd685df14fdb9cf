"""Grids of pictures that a person can judge: likely mislabels, and train-test near-duplicates side by side.

The list decides what is shown: its first rows, in its order, none left out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memfluence.datasets import Dataset
from memfluence.drawing import BLUE, INK, ORANGE, SOFT, picture
from memfluence.errors import InputError
from memfluence.findings import Duplicates, Mislabels
from memfluence.report._drawing import about, new_figure, pictures
from memfluence.wording import class_name, percent, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memfluence.runs import Run

# Inches: a picture, a line of text, what lies between two cells, the lines above all, the margin.
PICTURE, LINE, GAP, HEAD, MARGIN = 1.0, 0.125, 0.16, 0.46, 0.1
TOUCHING = 0.04  # between the two pictures of a pair
NAME_LETTERS = 15

Line = tuple[str, str, bool]  # text, colour, bold


def mislabels_figure(run: "Run", dataset: Dataset, found: Mislabels, path: Path, top: int = 40) -> Path:
    """The first `top` of the list with their labels, what held-out models say, and how often models are right."""
    rows = range(min(top, len(found)))
    shown = pictures(dataset, dataset.x_train, found.index[: len(rows)].tolist())

    def name(code: int) -> str:
        return shortened(class_name(dataset.class_names[code]), NAME_LETTERS)

    def lines(row: int) -> list[Line]:
        said = found.agreement
        suggested = []
        if said is not None:
            suggested = [(f"{name(int(said.suggestion[row]))}? {percent(said.share[row])}", BLUE, True)]
        return [
            (name(int(found.label[row])), ORANGE, True),
            *suggested,
            (f"{percent(found.accuracy_out[row])} → {percent(found.accuracy_in[row])}", INK, False),
            (f"train {found.index[row]}", SOFT, False),
        ]

    said = " and what held-out models say instead, with the share that does" if found.agreement else ""
    heading = (
        f"Likely mislabels. {about(run)}",
        f"The label{said}; models that are right without → with the example in training",
    )
    cells = [([shown[int(found.index[row])]], lines(row)) for row in rows]
    return _grid(path, heading, cells, columns=8)


def duplicates_figure(run: "Run", dataset: Dataset, found: Duplicates, path: Path, top: int = 40) -> Path:
    """The first `top` pairs of the list: the training example on the left, the test example on the right."""
    if not len(found):
        raise InputError("There are no pairs to draw; lower the influence threshold (--infl) or run more trials.")
    rows = range(min(top, len(found)))
    train = pictures(dataset, dataset.x_train, found.train_index[: len(rows)].tolist())
    test = pictures(dataset, dataset.x_test, found.test_index[: len(rows)].tolist())

    def lines(row: int) -> list[Line]:
        codes = dict.fromkeys((int(found.train_label[row]), int(found.test_label[row])))
        name = " / ".join(shortened(class_name(dataset.class_names[code]), NAME_LETTERS) for code in codes)
        return [
            (name, ORANGE, True),
            (f"influence {value(found.influence[row])}, at least {value(found.lower[row])}", INK, False),
            (f"train {found.train_index[row]}, test {found.test_index[row]}", SOFT, False),
        ]

    heading = (
        f"Train-test near-duplicates. {about(run)}",
        "Left the training, right the test example that hangs on it; influence and the lower end of its 95% interval",
    )
    cells = [([train[int(found.train_index[row])], test[int(found.test_index[row])]], lines(row)) for row in rows]
    return _grid(path, heading, cells, columns=4)


def _grid(
    path: Path, heading: Sequence[str], cells: Sequence[tuple[list[np.ndarray], list[Line]]], columns: int
) -> Path:
    """Cells of pictures side by side with lines of text below, row by row."""
    across, below = (max(len(cell[part]) for cell in cells) for part in (0, 1))
    cell_width = across * PICTURE + (across - 1) * TOUCHING + GAP
    cell_height = PICTURE + below * LINE + GAP
    columns = min(columns, len(cells))
    width = max(2 * MARGIN + columns * cell_width - GAP, 5.0)
    height = HEAD + -(-len(cells) // columns) * cell_height
    with new_figure(path, width, height) as figure:
        for k, (text, colour) in enumerate(zip(heading, (INK, SOFT))):
            _write(figure, MARGIN, height - 0.08 - k * 0.15, text, colour, False)
        for number, (images, lines) in enumerate(cells):
            row, column = divmod(number, columns)
            x, top = MARGIN + column * cell_width, height - HEAD - row * cell_height
            for k, image in enumerate(images):
                picture(figure, x + k * (PICTURE + TOUCHING), top, PICTURE, image)
            for k, line in enumerate(lines):
                _write(figure, x, top - PICTURE - 0.03 - k * LINE, *line, room=cell_width - GAP)
    return path


def _write(
    figure: "Figure", x: float, top: float, text: str, colour: str, bold: bool, room: float | None = None
) -> None:
    """Text at a place in inches, smaller where it would not fit into so much room."""
    width, height = figure.get_size_inches()
    weight = "bold" if bold else "normal"
    written = figure.text(x / width, top / height, text, color=colour, weight=weight, va="top", fontsize=7.5)
    if room is not None and (wide := written.get_window_extent().width / figure.dpi) > room:
        written.set_fontsize(7.5 * room / wide)
