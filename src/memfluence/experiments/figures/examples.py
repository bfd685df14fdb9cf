"""Training examples around three memorization values, a row for each class."""

from typing import TYPE_CHECKING

from memfluence.drawing import INK, ORANGE, SOFT, WORDS, cell, new_canvas, write
from memfluence.experiments import Result
from memfluence.wording import class_name, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

# Inches: a picture, what lies between two, between groups, the text below a picture, head and margin.
PICTURE, GAP, GROUP, TEXT, HEAD, MARGIN, NAME = 0.62, 0.06, 0.26, 0.22, 0.52, 0.1, 0.16


def draw(result: Result) -> "Figure":
    count, values = result.settings["count"], result.numbers["values"]
    classes = result.numbers["classes"]
    across, side = (PICTURE, PICTURE) if result.pictures else WORDS
    group = count * (across + GAP) - GAP + GROUP
    row = NAME + side + TEXT + 0.08
    width = 2 * MARGIN + len(values) * group - GROUP
    figure = new_canvas(max(width, 4.0), HEAD + len(classes) * row)
    height = figure.get_figheight()
    write(figure, MARGIN, height - 0.07, result.title, SOFT)
    for k, around in enumerate(values):
        write(figure, MARGIN + k * group, height - 0.28, f"memorization around {around:g}", INK, bold=True)
    for number, name in enumerate(classes):
        top = height - HEAD - number * row
        write(figure, MARGIN, top, shortened(class_name(name), 40), ORANGE, bold=True)
        own = result.table[result.table["class"] == name]
        for k, around in enumerate(values):
            for place, one in enumerate(own[own["around"] == around].itertuples()):
                x = MARGIN + k * group + place * (across + GAP)
                words = getattr(one, "input", "")
                cell(figure, x, top - NAME, side, result.pictures, f"train {one.index}", words)
                write(figure, x, top - NAME - side - 0.02, value(one.memorization), INK, size=6.5)
                write(figure, x, top - NAME - side - 0.115, f"train {one.index}", SOFT, size=5.5)
    return figure
