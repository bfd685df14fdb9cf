"""Figures for papers: memorized training examples with the test examples they carry, the histogram, the attack's curve,
and grids of pictures that a person can judge: likely mislabels, and train-test near-duplicates side by side.

A list decides what its grid shows: its first rows, in its order, none left out. Vector or PNG by the file's suffix.
Sizes are in inches at which the text is 7 to 9 points, so a figure goes into a page unscaled; the colours are Okabe and
Ito's, which colour-blind readers can tell apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, picture_range, to_images
from memfluence.drawing import (
    BLUE,
    FORMATS,
    GREY,
    INK,
    MARGIN,
    ORANGE,
    SOFT,
    axis_of_counts,
    encoded,
    legend,
    new_canvas,
    picture,
    style,
    write,
)
from memfluence.errors import InputError
from memfluence.estimators.counts import pair_counts
from memfluence.findings import Attack, CrossFit, Duplicates, Mislabels, Pairs
from memfluence.paper import INFLUENCE, MEMORIZED
from memfluence.report._histogram import histogram
from memfluence.runs import about
from memfluence.runs.values import check_bits
from memfluence.store import write_whole
from memfluence.wording import class_name, count, error, percent, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memfluence.runs import Run

CARRIED = 4  # test examples shown of each training example, as in the paper's figures
# Inches of the figure of pairs: an image, the lines below it, the lines above all; where its columns begin.
CELL, TEXT, HEAD, WIDTH = 0.94, 0.44, 0.42, 6.1
NAME_LETTERS = 16  # of a class's name, which is to end before the next column
COLUMNS = (0.1, *(1.52 + 1.14 * k for k in range(CARRIED)))
# Inches: a picture, a line of text, what lies between two cells.
PICTURE, LINE, GAP = 1.0, 0.125, 0.16
HISTOGRAM = 5.5, 2.4
TOUCHING = 0.04  # between the two pictures of a pair
GRID_LETTERS, ID_LETTERS = 15, 24

Line = tuple[str, str, bool]  # text, colour, bold


@contextmanager
def new_figure(path: Path, width: float, height: float, caption: str) -> "Iterator[Figure]":
    """A figure of that many inches with its caption below, saved to `path` when the block ends."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path} must end in one of {', '.join(FORMATS)}; got {path.suffix or 'no suffix'!r}.")
    with style():
        figure = new_canvas(width, height, caption)
        yield figure
        write_whole(path, encoded(figure, path.suffix))


def _about(run: "Run") -> str:
    """The data, the learner, n and t: 'digits, MLP: 1,197 training examples, 2,000 models'."""
    return f"{about(run.info)}, {count(len(run.trials))} models"


def pictures(dataset: Dataset, inputs: Any, rows: Sequence[int]) -> dict[int, np.ndarray]:
    """Pictures of some examples by index, (h, w) or (h, w, 3) uint8 each."""
    shown_range = picture_range(dataset.x_train, dataset.value_range)
    images = to_images(inputs, shown_range, np.array(rows))
    if images is None:
        raise InputError(f"{dataset.name} holds no images to draw; 'memfluence report' shows what its inputs are.")
    return dict(zip(rows, images))


@dataclass(frozen=True)
class Example:
    """An example and one value of it: a training example's memorization, or the influence on a test example."""

    index: int
    label: int  # code
    value: float
    stderr: float
    accuracy_in: float  # of the models that kept the training example in question
    accuracy_out: float  # of those that left it out


@dataclass(frozen=True)
class Carrier:
    """A memorized training example, and the test examples of its class that it influences most, strongest first."""

    train: Example
    tests: Sequence[Example]
    pairs: int  # high-influence pairs that it is in; where fewer than `tests`, the others are below the threshold


def pairs_figure(run: "Run", dataset: Dataset, path: Path, rows: int = 5, *, keep: float | None = None) -> Path:
    """The paper's figures 4 to 6: in each row a memorized training example and the four test examples of its class
    that it influences most, grey where the influence is below 0.15.

    The rows are spread evenly over all training examples in high-influence pairs, in the order of their highest
    influence, so that the strongest are not the only ones seen. Gives `path`.
    """
    pairs = run.find_pairs(MEMORIZED, INFLUENCE, keep=keep)
    carriers = _carriers_of(run, pairs, rows, keep)
    if not carriers:
        raise InputError(f"There are no pairs to draw. {pairs.warning}")
    train = pictures(dataset, dataset.x_train, [carrier.train.index for carrier in carriers])
    test = pictures(dataset, dataset.x_test, [one.index for carrier in carriers for one in carrier.tests])
    height = HEAD + len(carriers) * (CELL + TEXT)
    caption = (
        f"{_about(run)}. Memorization, and influence on test examples of the same class (grey: below"
        f" {value(INFLUENCE)}), ± standard error. Percent: models that are right without → with the training example."
    )
    with new_figure(path, WIDTH, height, caption) as figure:
        _heading(figure, height)
        for row, carrier in enumerate(carriers):
            top = height - HEAD - row * (CELL + TEXT)
            name = shortened(class_name(dataset.class_names[carrier.train.label]), NAME_LETTERS)
            _cell(figure, COLUMNS[0], top, train[carrier.train.index], carrier.train, ORANGE, f"{name}, ")
            _arrow(figure, top - CELL / 2)
            for k, one in enumerate(carrier.tests):
                colour = BLUE if k < carrier.pairs else SOFT
                _cell(figure, COLUMNS[1 + k], top, test[one.index], one, colour)
    return path


def histogram_figure(run: "Run", path: Path, *, keep: float | None = None) -> Path:
    """Draw the histogram of memorization, with the threshold of 0.25. Gives `path`."""
    with new_figure(path, *HISTOGRAM, f"{_about(run)}.") as figure:
        _draw_histogram(figure, run, keep)
    return path


def histogram_plot(run: "Run", *, keep: float | None = None) -> "Figure":
    """The same as a figure, which notebooks show whether pyplot was imported or not."""
    with style():
        figure = new_canvas(*HISTOGRAM, f"{_about(run)}.")
        (_draw_histogram_of_scores if run.outcome == "score" else _draw_histogram)(figure, run, keep)

    def shown() -> tuple[bytes, dict[str, int]]:
        with style():
            content = encoded(figure, ".png")
        return content, {"width": int(100 * figure.get_figwidth())}

    figure._repr_png_ = shown  # type: ignore[attr-defined]  # half as large as its pixels
    return figure


def _draw_histogram(figure: "Figure", run: "Run", keep: float | None) -> None:
    check_bits(run)  # the scale is that of accuracies
    chart = histogram(run.estimate_memorization(keep).value)
    memorized = int(chart.counts[chart.edges[:-1] >= MEMORIZED].sum())
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    colours = [ORANGE if edge >= MEMORIZED else GREY for edge in chart.edges[:-1]]
    axes.bar(chart.edges[:-1], chart.counts, np.diff(chart.edges), align="edge", color=colours, edgecolor="white")
    axes.set_yscale("function", functions=(np.log1p, np.expm1))  # one example among thousands can still be seen
    axes.set_yticks(chart.ticks, [count(tick) for tick in chart.ticks])
    axes.set_xlim(chart.edges[0], 1)
    axes.set_xticks(np.arange(np.ceil(4 * chart.edges[0]), 5) / 4)
    axes.axvline(MEMORIZED, color=INK, linewidth=1)
    axes.annotate(
        f"{count(memorized)} at {value(MEMORIZED)} or above",
        (MEMORIZED, 1.0),
        xytext=(4, 3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=ORANGE,
    )
    axes.set_xlabel("memorization")
    axes.set_ylabel("training examples\n(log scale)")


def _draw_histogram_of_scores(figure: "Figure", run: "Run", keep: float | None) -> None:
    """The same in the unit of a learner's own score, which has no threshold."""
    values = run.estimate_memorization(keep).value
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    counts, _, _ = axes.hist(values[~np.isnan(values)], bins=40, color=GREY, edgecolor="white")
    axis_of_counts(axes, np.max(counts))
    axes.set_xlabel("memorization, in the unit of the score")
    axes.set_ylabel("training examples\n(log scale)")


def attack_figure(run: "Run", found: Attack, path: Path) -> Path:
    """True against false positive rate of the online and the offline attack, with 95% bands. Gives `path`."""
    caption = (
        f"{_about(run)}; {found.targets} target models, each with {found.shadows} shadow models. Dotted: guessing."
        " Bands: 95% intervals over target models."
    )
    with new_figure(path, 4.6, 3.9, caption) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        least = 1 / max(10, found.online.non_members)
        axes.plot([least, 1], [least, 1], color=GREY, linewidth=1, linestyle=":")
        for name, roc, colour in (("online", found.online, ORANGE), ("offline", found.offline, BLUE)):
            floor = np.maximum([roc.lower, roc.upper, roc.found], least)  # 0 has no place on a logarithmic scale
            axes.fill_between(roc.rates, floor[0], floor[1], color=colour, alpha=0.2, linewidth=0)
            axes.plot(roc.rates, floor[2], color=colour, label=f"{name}, area {value(roc.auc.value)}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(least, 1)
        axes.set_ylim(least, 1)
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        axes.set_title("Members found")
        legend(axes, 2)
    return path


def _carriers_of(run: "Run", pairs: Pairs, wanted: int, keep: float | None) -> list[Carrier]:
    """Up to `wanted` training examples of the pairs, in the order of their highest influence.

    They are evenly spaced over the whole order, so that a figure does not show the strongest alone (the paper's last
    appendix).
    """
    check_bits(run)
    _, first = np.unique(pairs.train_index, return_index=True)
    order = np.sort(first)  # pairs come strongest first, so this is the order of the highest influence
    if len(order) > wanted:
        order = order[np.linspace(0, len(order) - 1, wanted).astype(int)]
    estimate, labels = run.estimate_memorization(keep), run.label_codes[0]
    columns = (estimate.value, estimate.stderr, estimate.accuracy_in, estimate.accuracy_out)
    carriers = []
    for row in pairs.train_index[order].tolist():
        train = Example(row, int(labels[row]), *(float(column[row]) for column in columns))
        carriers.append(Carrier(train, _most_influenced(run, train, keep), int((pairs.train_index == row).sum())))
    return carriers


def _most_influenced(run: "Run", train: Example, keep: float | None) -> list[Example]:
    estimates = run.influence_estimates(keep)
    labels = run.label_codes[1]
    candidates = np.flatnonzero(labels == train.label)
    values = estimates.block([train.index], candidates)[0]  # (candidates,)
    tests = candidates[np.argsort(-values, kind="stable")[:CARRIED]]
    trains = np.full_like(tests, train.index)
    found = estimates.at(trains, tests)
    arm = estimates.arms.in_trials
    accuracy_in = pair_counts(arm.mask, arm.test_correct, trains, tests) / estimates.arms.trials_in[train.index]
    columns = (found.value, found.stderr, accuracy_in, accuracy_in - found.value)
    return [
        Example(int(test), int(labels[test]), *(float(column[k]) for column in columns)) for k, test in enumerate(tests)
    ]


def _heading(figure: "Figure", height: float) -> None:
    for x, what, colour in (
        (COLUMNS[0], "memorized\ntraining example", ORANGE),
        (COLUMNS[1], "test examples that it carries", BLUE),
    ):
        figure.text(x / WIDTH, 1 - 0.36 / height, what, color=colour, weight="bold", va="bottom", linespacing=1.15)


def _cell(
    figure: "Figure", x: float, top: float, image: np.ndarray, example: Example, colour: str, note: str = ""
) -> None:
    """An image with its value below; x and top in inches from the lower left corner."""
    picture(figure, x, top, CELL, image)
    rounds_up = round(example.value, 2) >= INFLUENCE > example.value  # 0.148 is grey, so it must not read 0.15
    number = f"{value(example.value, 3 if rounds_up else 2)} ± {error(example.stderr)}"
    rates = f"{note}{percent(example.accuracy_out)} → {percent(example.accuracy_in)}"
    write(figure, x, top - CELL - 0.05, number, colour, bold=True, size=8)
    write(figure, x, top - CELL - 0.19, rates, SOFT)


def _arrow(figure: "Figure", y: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    height = figure.get_figheight()
    start, end = ((x / WIDTH, y / height) for x in (COLUMNS[0] + CELL + 0.12, COLUMNS[1] - 0.12))
    figure.add_artist(FancyArrowPatch(start, end, arrowstyle="->", mutation_scale=9, color=SOFT, shrinkA=0, shrinkB=0))


def mislabels_figure(run: "Run", dataset: Dataset, found: Mislabels, path: Path, top: int = 40) -> Path:
    """The first `top` labels believed to be wrong, what held-out models say, and how often models are right."""
    rows = range(min(top, int(found.believed.sum())))
    shown = pictures(dataset, dataset.x_train, found.index[: max(1, len(rows))].tolist())
    if not rows:
        raise InputError("No label is believed to be wrong, so there is nothing to draw.")

    def name(code: int) -> str:
        return shortened(class_name(dataset.class_names[code]), GRID_LETTERS)

    def lines(row: int) -> list[Line]:
        said = found.agreement
        suggested = []
        if said is not None:
            suggested = [(f"{name(int(said.suggestion[row]))}? {percent(said.share[row])}", BLUE, True)]
        return [
            (name(int(found.label[row])), ORANGE, True),
            *suggested,
            (f"{percent(found.accuracy_out[row])} → {percent(found.accuracy_in[row])}", INK, False),
            (f"train {_known_as(run.ids[0][found.index[row]])}", SOFT, False),
        ]

    said = ", what held-out models say instead and the share that does" if found.agreement else ""
    caption = (
        f"Labels to check. {_about(run)}. Below each picture its label{said}, and the models that are right without →"
        " with the example in training."
    )
    cells = [([shown[int(found.index[row])]], lines(row)) for row in rows]
    return _grid(path, caption, cells, columns=8)


def _known_as(id: Any) -> str:
    """An id with its end, by which files of one folder differ."""
    return text if len(text := str(id)) <= ID_LETTERS else f"…{text[1 - ID_LETTERS :]}"


def duplicates_figure(run: "Run", dataset: Dataset, found: Duplicates, path: Path, top: int = 40) -> Path:
    """The first `top` pairs of the list: the training example on the left, the test example on the right."""
    return pair_grid(run, dataset, found, path, top, title="Train-test near-duplicates")


def pair_grid(
    run: "Run",
    dataset: Dataset,
    found: Pairs | CrossFit | Duplicates,
    path: Path,
    top: int = 40,
    *,
    title: str = "High-influence pairs",
) -> Path:
    """The first `top` pairs that were found, the training example on the left, the test example on the right."""
    if not len(found):
        raise InputError("There are no pairs to draw; lower the influence threshold (`infl`) or run more trials.")
    rows = range(min(top, len(found)))
    train = pictures(dataset, dataset.x_train, found.train_index[: len(rows)].tolist())
    test = pictures(dataset, dataset.x_test, found.test_index[: len(rows)].tolist())

    def lines(row: int) -> list[Line]:
        positions = found.train_index[row], found.test_index[row]
        ids = [own[one] for own, one in zip(run.ids, positions)]
        codes = dict.fromkeys(int(labels[one]) for labels, one in zip(run.label_codes, positions))
        name = " / ".join(shortened(class_name(dataset.class_names[code]), GRID_LETTERS) for code in codes)
        return [
            (name, ORANGE, True),
            (f"influence {value(found.influence[row])}, at least {value(found.lower[row])}", INK, False),
            (f"train {_known_as(ids[0])}, test {_known_as(ids[1])}", SOFT, False),
        ]

    caption = (
        f"{title}. {_about(run)}. Left the training, right the test example that hangs on it; influence and the lower"
        " end of its 95% interval."
    )
    cells = [([train[int(found.train_index[row])], test[int(found.test_index[row])]], lines(row)) for row in rows]
    return _grid(path, caption, cells, columns=4)


def _grid(path: Path, caption: str, cells: Sequence[tuple[list[np.ndarray], list[Line]]], columns: int) -> Path:
    """Cells of pictures side by side with lines of text below, row by row."""
    across, below = (max(len(cell[part]) for cell in cells) for part in (0, 1))
    cell_width = across * PICTURE + (across - 1) * TOUCHING + GAP
    cell_height = PICTURE + below * LINE + GAP
    columns = min(columns, len(cells))
    width = max(2 * MARGIN + columns * cell_width - GAP, 5.0)
    height = MARGIN + -(-len(cells) // columns) * cell_height
    with new_figure(path, width, height, caption) as figure:
        for number, (images, lines) in enumerate(cells):
            row, column = divmod(number, columns)
            x, top = MARGIN + column * cell_width, height - MARGIN - row * cell_height
            for k, image in enumerate(images):
                picture(figure, x + k * (PICTURE + TOUCHING), top, PICTURE, image)
            for k, line in enumerate(lines):
                write(figure, x, top - PICTURE - 0.03 - k * LINE, *line, size=7.5, room=cell_width - GAP)
    return path
