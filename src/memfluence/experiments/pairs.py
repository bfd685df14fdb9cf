"""Pairs to look at (the paper's Figs. 4 to 6): memorized training examples and the test examples they carry.

Selection (App. C), so that nothing is cherry-picked. The training examples in high-influence pairs are sorted by the
highest influence that they have on a test example, and 3 consecutive sets of 5 are taken with positions spread evenly
over that order. The paper's lines, where `idx_train_selected` is ascending:

    idx_sort_selected = np.argsort(-max_infl_of_train_selected)
    base_idxs = np.linspace(0, len(idx_train_selected) - n_copies, n_egs).astype(np.int)
    for i_copy in range(n_copies):
      idxs_to_depict = [idx_train_selected[idx_sort_selected[x + i_copy]] for x in base_idxs]

Ours differ in three things: the sort is stable, so that equal influences go to the lower index on every machine;
positions stay in range below 3 examples, where the lines above fail; and below 15, where they repeat examples, each is
shown once, the first time. Of each training example the 4 test examples of its class that it influences most are shown
(of any class, if pairs are selected so), also where the last of them are below the threshold.

Failure cases. No pair reaches the thresholds: an error that says so.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.drawing import BLUE, INK, MARGIN, ORANGE, SOFT, WORDS, cell, new_canvas, write
from memfluence.errors import InputError
from memfluence.experiments._result import Result, Said, check_trials, decimal
from memfluence.experiments.examples import in_words, pictures
from memfluence.runs import Run, about
from memfluence.wording import class_name, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "Pairs to look at (Figs. 4 to 6)"
CAPTION = "Chosen by the paper's procedure."

SETS, EACH, TESTS = 3, 5, 4  # n_copies, n_egs and n_test_egs of the paper


def summarize(
    run: Run,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    same_class: bool = True,
    dataset: str | None = None,
    keep: float | None = None,
    memory: str | int | None = None,
) -> Result:
    """The paper's selection of training examples, each with its four most influenced test examples."""
    check_trials(run)
    pairs = run.find_pairs(mem, infl, same_class=same_class, keep=keep, permutations=0, memory=memory)
    if not len(pairs):
        raise InputError(f"There are no pairs to show. {pairs.warning}")
    data = run.dataset(dataset)
    order = strongest_first(pairs.train_index, pairs.influence)
    estimates, memorization = run.influence_estimates(keep, memory=memory), run.estimate_memorization(keep)
    codes, ids = run.label_codes, [own.tolist() for own in run.ids]
    rows: list[dict[str, Any]] = []
    for number, places in enumerate(positions(len(order))):
        for place in places:
            train = int(order[place])
            candidates = np.flatnonzero(codes[1] == codes[0][train]) if same_class else np.arange(run.info.n_test)
            values = estimates.block([train], candidates)[0]  # (candidates,)
            best = candidates[np.argsort(-values, kind="stable")[:TESTS]]
            found = estimates.at(np.full(len(best), train), best)
            rows += [
                {
                    "set": number,
                    "position": place,
                    "train_index": train,
                    "class": data.class_names[codes[0][train]],
                    "memorization": float(memorization.value[train]),
                    "memorization_stderr": float(memorization.stderr[train]),
                    "test_index": test,
                    "test_class": data.class_names[codes[1][test]],
                    "influence": float(found.value[k]),
                    "stderr": float(found.stderr[k]),
                    "selected": bool(found.value[k] >= infl),
                    "train_id": ids[0][train],
                    "test_id": ids[1][test],
                }
                for k, test in enumerate(best.tolist())
            ]
    images = pictures(data, "train", (row["train_index"] for row in rows))
    images |= pictures(data, "test", (row["test_index"] for row in rows))
    if not images:
        for row in rows:
            row["train_input"] = in_words(data, "train", row["train_index"])
            row["test_input"] = in_words(data, "test", row["test_index"])
    numbers = {**pairs.summary, "shown_train_examples": len({row["train_index"] for row in rows})}
    settings = {"mem": mem, "infl": infl, "same_class": same_class, "keep": keep}
    title = (
        f"{about(run.info)}, {len(run.trials):,} models; {len(pairs):,} pairs (memorization ≥ {mem:g}, influence ≥"
        f" {infl:g})"
    )
    return Result("pairs", title, numbers, rows, settings, images)


def strongest_first(train_index: np.ndarray, influence: np.ndarray) -> np.ndarray:
    """The training examples of pairs by their highest influence, ties to the lower index."""
    train, which = np.unique(train_index, return_inverse=True)  # ascending
    highest = np.full(len(train), -np.inf)
    np.maximum.at(highest, which, influence)
    return np.asarray(train[np.argsort(-highest, kind="stable")])


def positions(examples: int, sets: int = SETS, each: int = EACH) -> list[list[int]]:
    """Positions in the sorted order that each set shows; every position at most once."""
    base = np.linspace(0, max(0, examples - sets), each).astype(int)  # (each,)
    shown: set[int] = set()
    found = []
    for copy in range(sets):
        places = [place for place in dict.fromkeys((base + copy).tolist()) if place < examples and place not in shown]
        shown.update(places)
        found.append(places)
    return found


# Inches: a picture, between pictures, between sets, the text above a picture, a class's name.
PICTURE, GAP, SET, TEXT, NAME = 0.56, 0.06, 0.3, 0.15, 0.19
LEGEND = "Orange: memorization; blue: influence on the test example (grey: below the threshold)."


def draw(result: Result) -> "Figure":
    """The paper's Figs. 4 to 6: three sets of training examples, each with the test examples that it influences."""
    table, least = result.table, result.settings["infl"]
    across, side = (PICTURE, PICTURE) if result.pictures else WORDS
    of_sets = [table[table["set"] == number] for number in sorted(table["set"].unique())]
    rows = [own["train_index"].nunique() for own in of_sets]
    width, row = (1 + TESTS) * (across + GAP) + 2 * GAP, side + TEXT + NAME
    # sets of pictures go side by side, sets of words below each other
    places = [(k * (width + SET), 0) if result.pictures else (0.0, sum(rows[:k])) for k in range(len(rows))]
    deepest = max(first + count for (_, first), count in zip(places, rows))
    across_all, height = max(2 * MARGIN + places[-1][0] + width, 6.4), MARGIN + deepest * row
    figure = new_canvas(across_all, height, f"{result.title}. {_which(result)}. {LEGEND}")
    for (left, first), own in zip(places, of_sets):
        for number, (train, pairs) in enumerate(own.groupby("train_index", sort=False), start=first):
            x, top = MARGIN + left, height - MARGIN - number * row
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


def say(result: Result) -> Said:
    columns = ["set", "train_index", "class", "memorization", "test_index", "influence"]
    rows = (
        (one[0] + 1, one[1], one[2], decimal(one[3]), one[4], decimal(one[5]))
        for one in result.table[columns].itertuples(index=False)
    )
    return Said(("set", "train", "class", "memorization", "test", "influence"), rows)
