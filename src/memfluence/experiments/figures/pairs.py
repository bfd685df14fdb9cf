"""The paper's Figs. 4 to 6: three sets of training examples, each with the test examples that it influences most."""

from typing import TYPE_CHECKING

from memfluence.drawing import BLUE, INK, ORANGE, SOFT, WORDS, cell, new_canvas, write
from memfluence.experiments import Result
from memfluence.experiments.pairs import EACH, SETS, TESTS
from memfluence.wording import class_name, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

# Inches: a picture, between pictures, between sets, the text above a picture, a class's name, head and margin.
PICTURE, GAP, SET, TEXT, NAME, HEAD, MARGIN = 0.56, 0.06, 0.3, 0.15, 0.19, 0.65, 0.1
COLOURS = "Orange: memorization; blue: influence on the test example (grey: below the threshold)"


def draw(result: Result) -> "Figure":
    table, least = result.table, result.settings["infl"]
    across, side = (PICTURE, PICTURE) if result.pictures else WORDS
    of_sets = [table[table["set"] == number] for number in sorted(table["set"].unique())]
    rows = [own["train_index"].nunique() for own in of_sets]
    width, row = (1 + TESTS) * (across + GAP) + 2 * GAP, side + TEXT + NAME
    # sets of pictures go side by side, sets of words below each other
    places = [(k * (width + SET), 0) if result.pictures else (0.0, sum(rows[:k])) for k in range(len(rows))]
    deepest = max(first + count for (_, first), count in zip(places, rows))
    figure = new_canvas(max(2 * MARGIN + places[-1][0] + width, 6.4), HEAD + deepest * row + 0.05)
    height = figure.get_figheight()
    for line, text in enumerate((result.title, _which(result), COLOURS)):
        write(figure, MARGIN, height - 0.07 - 0.15 * line, text, SOFT)
    for (left, first), own in zip(places, of_sets):
        for number, (train, pairs) in enumerate(own.groupby("train_index", sort=False), start=first):
            x, top = MARGIN + left, height - HEAD - number * row
            one = pairs.iloc[0]
            write(figure, x, top, value(one["memorization"]), ORANGE, size=6.5, bold=True)
            cell(figure, x, top - TEXT + 0.02, side, result.pictures, f"train {train}", one.get("train_input", ""))
            write(figure, x, top - TEXT - side, shortened(class_name(one["class"]), 24), INK, size=5.5)
            for k, test in enumerate(pairs.itertuples()):
                at = x + (k + 1) * (across + GAP) + 2 * GAP
                rounds_up = round(test.influence, 2) >= least and not test.selected  # 0.148 is grey: not to read 0.15
                said, colour = value(test.influence, 3 if rounds_up else 2), BLUE if test.selected else SOFT
                write(figure, at, top, said, colour, size=6.5, bold=test.selected)
                words = getattr(test, "test_input", "")
                cell(figure, at, top - TEXT + 0.02, side, result.pictures, f"test {test.test_index}", words)
                if test.test_class != one["class"]:
                    write(figure, at, top - TEXT - side, shortened(class_name(test.test_class), 12), INK, size=5.5)
    return figure


def _which(result: Result) -> str:
    shown = result.numbers["shown_train_examples"]
    if shown == SETS * EACH:
        return f"{SETS} sets of {EACH} training examples, spread evenly over the order of their highest influence"
    return f"{shown} training examples, in the order of their highest influence"
