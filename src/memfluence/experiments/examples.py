"""Examples by memorization (the paper's Fig. 1): what is memorized not at all, half of the time, and always?

Definition (Sec. 3.1). Training examples with a memorization estimate around 0, 0.5 and 1, class by class.

Selection, so that nobody has to trust ours: each example of a class belongs to the value that its estimate is nearest
to, and of those the `count` nearest are shown, ties to the lower index. Classes are those asked for, or those in which
the shown examples come closest to the three values (the farthest of them decides), ties to the first class.

Failure cases. A class may have nobody near a value (one that has a single example has two such values): the place stays
empty, and a warning says so. With few trials many estimates are equal, and ties decide.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from memfluence.datasets import Dataset, features, one_input, picture_range, to_images
from memfluence.drawing import INK, MARGIN, ORANGE, SOFT, WORDS, cell, new_canvas, write
from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments._result import Result, Said, check_trials, decimal
from memfluence.runs import Run, about
from memfluence.wording import class_name, shortened, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "What is memorized (Fig. 1)"
CAPTION = "Training examples with memorization around 0, 0.5 and 1."

VALUES = (0.0, 0.5, 1.0)
CLASSES = 3  # shown where none are asked for
FEATURES, LETTERS = 6, 160  # of an input in words


def summarize(
    run: Run,
    *,
    classes: Annotated[Sequence[Any] | None, "Classes: bee,rose.  [default: the three that fit best]"] = None,
    count: Annotated[int, "Examples around each value."] = 4,
    dataset: str | None = None,
    keep: float | None = None,
) -> Result:
    """Up to `count` examples around each value, of classes given by label or name."""
    check_trials(run)
    if count < 1:
        raise InputError(f"The `count` of examples around each value must be at least 1. Got {count!r} instead.")
    data = run.dataset(dataset)
    estimate, codes = run.estimate_memorization(keep), run.label_codes[0]
    names, ids = data.class_names, run.ids[0].tolist()
    chosen = chosen_classes(run, names, classes) if classes else _closest(estimate.value, codes, count)
    rows: list[dict[str, Any]] = []
    for code in chosen:
        groups = nearest(estimate.value, np.flatnonzero(codes == code), count)
        _warn_of_empty(names[code], groups)
        rows += [
            {
                "class": names[code],
                "around": value,
                "index": index,
                "memorization": float(estimate.value[index]),
                "stderr": float(estimate.stderr[index]),
                "accuracy_in": float(estimate.accuracy_in[index]),
                "accuracy_out": float(estimate.accuracy_out[index]),
                "id": ids[index],
            }
            for value, group in zip(VALUES, groups)
            for index in group.tolist()
        ]
    images = pictures(data, "train", (row["index"] for row in rows))
    if not images:
        for row in rows:
            row["input"] = in_words(data, "train", row["index"])
    numbers = {
        "classes": [names[code] for code in chosen],
        "values": VALUES,
        "n_train": run.info.n_train,
        "near": {  # of all classes
            f"{value:g}": int((np.abs(estimate.value - value) <= 0.05).sum()) for value in VALUES
        },
    }
    settings = {"classes": list(classes) if classes else None, "count": count, "keep": keep}
    title = f"{about(run.info)}, {len(run.trials):,} models"
    return Result("examples", title, numbers, rows, settings, images)


def nearest(memorization: np.ndarray, members: np.ndarray, count: int) -> list[np.ndarray]:
    """For each of `VALUES` the indices of its nearest examples among `members` (ascending), nearest first.

    An example serves the value that it is nearest to, the lower one of two. Estimates that are not there serve none.
    """
    known = members[~np.isnan(memorization[members])]
    distance = np.abs(memorization[known, None] - np.array(VALUES))  # (members, values)
    serves = distance.argmin(axis=1) if len(known) else np.empty(0, dtype=np.int64)
    found = []
    for k in range(len(VALUES)):
        own = np.flatnonzero(serves == k)
        found.append(known[own[np.argsort(distance[own, k], kind="stable")[:count]]])
    return found


def _closest(memorization: np.ndarray, codes: np.ndarray, count: int) -> list[int]:
    """The classes whose shown examples are closest to the values, closest first."""
    labels = np.unique(codes).tolist()
    farthest = []
    for code in labels:
        groups = nearest(memorization, np.flatnonzero(codes == code), count)
        full = all(len(group) == count for group in groups)
        far = (np.abs(memorization[group] - value).max() for value, group in zip(VALUES, groups) if len(group))
        farthest.append((sum(len(group) == 0 for group in groups), not full, max(far, default=np.inf)))
    order = sorted(range(len(labels)), key=lambda k: farthest[k])  # stable: ties to the first class
    return [labels[k] for k in order[:CLASSES]]


def chosen_classes(run: Run, names: Sequence[str], given: Sequence[Any]) -> list[int]:
    """Codes of classes that are given by label or name."""
    labels = [str(label) for label in run.classes.tolist()]
    found = []
    for one in given:
        places = [k for k, pair in enumerate(zip(labels, names)) if str(one) in pair]
        if not places or not (run.label_codes[0] == places[0]).any():
            some = ", ".join(names[:5])
            raise InputError(f"No training example is of the class {str(one)!r}; classes are called {some}, ...")
        found.append(places[0])
    return found


def _warn_of_empty(name: str, groups: Sequence[np.ndarray]) -> None:
    if empty := [f"{value:g}" for value, group in zip(VALUES, groups) if not len(group)]:
        there = sum(len(group) for group in groups)
        warnings.warn(
            f"The class {name!r} has nobody with a memorization around {' or '.join(empty)}, so these places stay empty"
            f" ({there} of its examples shown).",
            MemfluenceWarning,
            stacklevel=3,
        )


# Inches: a picture, what lies between two, between groups, the text below a picture, head, a class's name.
PICTURE, GAP, GROUP, TEXT, HEAD, NAME = 0.62, 0.06, 0.26, 0.22, 0.3, 0.16


def pictures(dataset: Dataset, split: Literal["train", "test"], rows: Iterable[int]) -> dict[str, np.ndarray]:
    """Pictures of some examples as {"train 17": (h, w) or (h, w, 3) uint8}; none where the data are not images."""
    some = sorted(set(rows))
    shown_range = picture_range(dataset.x_train, dataset.value_range)
    images = to_images(_inputs(dataset, split), shown_range, np.array(some)) if some else None
    return {} if images is None else {f"{split} {row}": image for row, image in zip(some, images)}


def in_words(dataset: Dataset, split: Literal["train", "test"], row: int) -> str:
    """An input as text: itself, or its first features by name."""
    one = one_input(_inputs(dataset, split), row)
    if isinstance(one, str):
        text = " ".join(one[: 4 * LETTERS].split())
        return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
    named = list(features(one))
    shown = ", ".join(f"{name} {_short(value)}" for name, value in named[:FEATURES])
    return shown + (f" and {len(named) - FEATURES:,} more" if len(named) > FEATURES else "")


def _inputs(dataset: Dataset, split: str) -> Any:
    return dataset.x_train if split == "train" else dataset.x_test


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def draw(result: Result) -> "Figure":
    """Training examples around three memorization values, a row for each class."""
    count, values = result.settings["count"], result.numbers["values"]
    classes = result.numbers["classes"]
    across, side = (PICTURE, PICTURE) if result.pictures else WORDS
    group = count * (across + GAP) - GAP + GROUP
    row = NAME + side + TEXT + 0.08
    width = 2 * MARGIN + len(values) * group - GROUP
    height = HEAD + len(classes) * row
    figure = new_canvas(max(width, 4.0), height, f"{CAPTION} {result.title}.")
    for k, around in enumerate(values):
        write(figure, MARGIN + k * group, height - 0.07, f"memorization around {around:g}", INK, bold=True)
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


def say(result: Result) -> Said:
    columns = ["class", "around", "index", "memorization", "stderr"]
    rows = (
        (one[0], f"{one[1]:g}", one[2], decimal(one[3]), decimal(one[4]))
        for one in result.table[columns].itertuples(index=False)
    )
    return Said(columns, rows)
