"""Map of the long tail: classes in rows, from typical examples to memorized ones, with the histogram of each class.

Definition and selection are those of `findings/tail_map.py`, so that nobody has to trust ours: columns are ranges of
memorization of one width, and a cell shows the example of its class whose accuracies are nearest to what the column
stands for. Rows are the classes asked for, or some that are evenly spread over the order of the share that is
memorized, from the highest to the lowest. Beside a row stands the histogram of its class in the same ranges.

Of a text a cell shows the words that tell classes apart, of a row of a table the features that are unusual in its
class.

Failure cases. A cell in which a class has nobody stays empty. What most models get wrong although they saw it is
neither typical nor memorized: it is counted, and not shown.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from memfluence.datasets import UNUSUAL, telling
from memfluence.drawing import GREY, INK, MARGIN, ORANGE, SOFT, WORDS, cell, new_canvas, write
from memfluence.errors import InputError
from memfluence.experiments._result import Result, Said, check_trials, decimal
from memfluence.experiments.examples import chosen_classes, pictures
from memfluence.findings import tail_map
from memfluence.paper import MEMORIZED
from memfluence.runs import Run, about
from memfluence.wording import class_name, count, percent, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "The long tail in one look"
CAPTION = (
    "Each row is a class, from typical examples to memorized ones, with its histogram of memorization and the share"
    " that is memorized (0.25 or above)."
)

ROWS, COLUMNS, WORD_COLUMNS = 10, 12, 4


def summarize(
    run: Run,
    *,
    classes: Annotated[Sequence[Any] | None, "Classes: bee,rose.  [default: some, evenly spread]"] = None,
    rows: Annotated[int, "Classes shown, where none are asked for."] = ROWS,
    columns: Annotated[int | None, "Ranges of memorization, a multiple of 4.  [default: 12; 4 for words]"] = None,
    dataset: str | None = None,
    keep: float | None = None,
) -> Result:
    """One example of each class and range of memorization, and how many there are."""
    check_trials(run)
    data = run.dataset(dataset)
    scores, codes = run.estimate_memorization(keep), run.label_codes[0]
    names, ids = data.class_names, run.ids[0].tolist()
    images = bool(pictures(data, "train", [0]))
    if columns is None:
        columns = COLUMNS if images else WORD_COLUMNS
    if columns < 4 or columns % 4 or rows < 1:
        raise InputError(
            f"`columns` must be a multiple of 4 and `rows` at least 1. Got {columns!r} and {rows!r} instead."
        )
    found = tail_map(scores, codes, columns)
    counts = {int(code): found.counts(code) for code in np.unique(found.row)}
    nobody = np.zeros(columns + 1, np.int64)  # of a class without an estimate
    memorized = {code: float(own[columns // 4 : columns].sum() / own.sum()) for code, own in counts.items()}
    shown = chosen_classes(run, names, classes) if classes else _spread(memorized, rows)
    cells = np.flatnonzero(np.isin(found.row, shown) & (found.column < columns))
    table = [
        {
            "class": names[int(found.row[k])],
            "from": found.column[k] / columns,
            "to": (found.column[k] + 1) / columns,
            "count": int(found.count[k]),
            "index": int(found.index[k]),
            "memorization": float(scores.value[found.index[k]]),
            "stderr": float(scores.stderr[found.index[k]]),
            "accuracy_in": float(scores.accuracy_in[found.index[k]]),
            "accuracy_out": float(scores.accuracy_out[found.index[k]]),
            "id": ids[found.index[k]],
        }
        for k in sorted(cells.tolist(), key=lambda k: (shown.index(int(found.row[k])), found.column[k]))
    ]
    if not images and table:
        for row, words in zip(table, telling(data, [row["index"] for row in table])):
            row["input"] = words if isinstance(words, str) else _in_words(words)
    numbers = {
        "classes": [names[code] for code in shown],
        "memorized": [memorized.get(code) for code in shown],  # shares
        "histograms": [counts.get(code, nobody).tolist() for code in shown],  # what is not learned last
        "n_train": run.info.n_train,
    }
    settings = {"classes": list(classes) if classes else None, "rows": rows, "columns": columns, "keep": keep}
    title = f"{about(run.info)}, {len(run.trials):,} models"
    shown_pictures = pictures(data, "train", (row["index"] for row in table)) if images else {}
    return Result("map", title, numbers, table, settings, shown_pictures)


def _spread(memorized: dict[int, float], rows: int) -> list[int]:
    """Classes by the share that is memorized, highest first; of too many some, evenly spread."""
    order = sorted(memorized, key=lambda code: (-memorized[code], code))
    if len(order) <= rows:
        return order
    return [order[k] for k in np.linspace(0, len(order) - 1, rows).round().astype(int)]


def _in_words(features: Sequence[tuple[str, Any, float]]) -> str:
    """'mean area 2501 (high), clinic island': the unusual ones, or all of them where none is."""
    unusual = [one for one in features if abs(one[2]) >= UNUSUAL] or features
    said = (
        f"{shortened(name, 24)} {one:.4g}" if isinstance(one, float) else f"{name} {one}" for name, one, _ in unusual
    )
    return ", ".join(said)


# Inches: a picture, between two, a class's name, its histogram, the lines above all.
PICTURE, GAP, NAME, CHART, HEAD = 0.42, 0.035, 0.86, 0.72, 0.46


def draw(result: Result) -> "Figure":
    """Classes in rows, ranges of memorization in columns, the histogram of each class at the end of its row."""
    columns, classes = result.settings["columns"], result.numbers["classes"]
    across, side = (PICTURE, PICTURE) if result.pictures else (WORDS[0], WORDS[1])
    step, high = across + GAP, side + GAP
    left = MARGIN + NAME
    right = left + columns * step
    height = HEAD + len(classes) * high + MARGIN
    figure = new_canvas(right + 0.1 + CHART + 0.36 + MARGIN, height, f"{CAPTION} {result.title}.")
    _axis(figure, left, right - GAP, height - 0.06)
    for number, (name, share) in enumerate(zip(classes, result.numbers["memorized"])):
        top = height - HEAD - number * high
        middle = top - side / 2 + 0.05 if result.pictures else top
        write(figure, MARGIN, middle, shortened(class_name(name), 22), INK, bold=True, room=NAME - 0.06)
        own = result.table[result.table["class"] == name] if len(result.table) else result.table
        for one in own.itertuples():
            x = left + round(one[2] * columns) * step
            cell(figure, x, top, side, result.pictures, f"train {one.index}", getattr(one, "input", ""), smooth=True)
        if share is not None:
            _chart(
                figure, right + 0.1, top, min(side, PICTURE), np.array(result.numbers["histograms"][number][:columns])
            )
            write(figure, right + 0.14 + CHART, middle, percent(share), ORANGE, bold=True)
    return figure


def _axis(figure: "Figure", left: float, right: float, top: float) -> None:
    """From typical to memorized, with the paper's threshold."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    for x, words, side, colour in (
        (left, "typical: learned from the others", "left", SOFT),
        (right, "memorized: right only if seen", "right", ORANGE),
    ):
        figure.text(x / width, top / height, words, color=colour, fontsize=7, weight="bold", va="top", ha=side)
    cut = left + MEMORIZED * (right - left)
    for start, end, colour in ((left, cut, GREY), (cut, right, ORANGE)):
        line = [start / width, end / width], [(top - 0.17) / height] * 2
        figure.add_artist(Line2D(*line, color=colour, linewidth=2, solid_capstyle="butt"))
    write(figure, cut + 0.02, top - 0.2, f"from {value(MEMORIZED)} on", ORANGE, size=5.5)


def _chart(figure: "Figure", x: float, top: float, side: float, counts: np.ndarray) -> None:
    """The histogram of a row, on a linear scale of its own."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((x / width, (top - side) / height, CHART / width, side / height))
    colours = [ORANGE if k >= MEMORIZED * len(counts) else GREY for k in range(len(counts))]
    axes.bar(np.arange(len(counts)), counts, 0.8, color=colours)
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_ylim(0, max(1, counts.max()))
    axes.set_axis_off()


def say(result: Result) -> Said:
    columns = result.settings["columns"]
    found = result.numbers
    rows = (
        (name, decimal(share, 2), own[0], sum(own[columns // 4 : columns]), own[columns])
        for name, share, own in zip(found["classes"], found["memorized"], found["histograms"])
    )
    header = ("class", "memorized", f"below {1 / columns:.2g}", f"at {MEMORIZED} or above", "not learned")
    return Said(header, rows, (f"{count(len(result.table))} examples stand for their class and range.",))
