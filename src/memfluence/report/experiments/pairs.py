"""The paper's Figs. 4 to 6: three sets of training examples, each with the test examples that it influences most."""

from typing import TYPE_CHECKING

from memfluence.experiments import Result
from memfluence.experiments.pairs import EACH, SETS, TESTS
from memfluence.report._wording import class_name, shortened, value
from memfluence.report.experiments._cells import cell, new_canvas, write
from memfluence.report.experiments._panels import BLUE, INK, ORANGE, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

# Inches: between pictures, between sets, the text above a picture, a class's name, head and margin.
GAP, SET, TEXT, NAME, HEAD, MARGIN = 0.06, 0.3, 0.15, 0.19, 0.5, 0.1


def draw(result: Result) -> "Figure":
    side = 0.56 if result.pictures else 1.15  # words need more room
    table = result.table
    sets = sorted(table["set"].unique())
    rows = max(table[table["set"] == number]["train_index"].nunique() for number in sets)
    across = (1 + TESTS) * (side + GAP) + 2 * GAP
    figure = new_canvas(
        max(2 * MARGIN + len(sets) * (across + SET) - SET, 4.6), HEAD + rows * (side + TEXT + NAME) + 0.05
    )
    height = figure.get_figheight()
    write(figure, MARGIN, height - 0.07, result.title, SOFT)
    write(figure, MARGIN, height - 0.22, _what(result), SOFT)
    for place, number in enumerate(sets):
        x = MARGIN + place * (across + SET)
        for row, (train, own) in enumerate(table[table["set"] == number].groupby("train_index", sort=False)):
            top = height - HEAD - row * (side + TEXT + NAME)
            first = own.iloc[0]
            name = shortened(class_name(first["class"]), 24)
            write(figure, x, top, f"{value(first['memorization'])}", ORANGE, size=6.5, bold=True)
            cell(figure, x, top - TEXT + 0.02, side, result.pictures, f"train {train}", first.get("train_input", ""))
            write(figure, x, top - TEXT - side, name, INK, size=5.5)
            for k, one in enumerate(own.itertuples()):
                left = x + (k + 1) * (side + GAP) + 2 * GAP
                colour = BLUE if one.selected else SOFT
                write(figure, left, top, value(one.influence), colour, size=6.5, bold=one.selected)
                words = getattr(one, "test_input", "")
                cell(figure, left, top - TEXT + 0.02, side, result.pictures, f"test {one.test_index}", words)
                if one.test_class != first["class"]:
                    write(figure, left, top - TEXT - side, shortened(class_name(one.test_class), 12), INK, size=5.5)
    return figure


def _what(result: Result) -> str:
    shown = result.numbers["shown_train_examples"]
    spread = (
        f"{SETS} sets of {EACH} training examples, spread evenly over the order of their highest influence"
        if shown == SETS * EACH
        else f"{shown} training examples, in the order of their highest influence"
    )
    return f"{spread}. Orange: memorization; blue: influence on the test example (grey: below the threshold)"
