"""The inputs of all examples for the explorer: sheets of thumbnails, or texts and features; and their ids."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset, features, is_missing, one_input, picture_range
from memfluence.report.explorer.folder import Folder
from memfluence.report.explorer.scripts import script
from memfluence.report.explorer.sheets import are_pictures, chosen_layout, sheets
from memfluence.report.explorer.tables import CHUNK
from memfluence.wording import shortened

if TYPE_CHECKING:
    from memfluence.runs import Run

ID_LETTERS = 200
FEATURES = 12
CELL_LETTERS, NAME_LETTERS = 40, 40
BYTES_IN_ALL = 60_000_000
FEWEST_LETTERS, MOST_LETTERS = 160, 5000
SAMPLE = 64

Rows = dict[str, Any]
Ids = tuple[Sequence[Any] | np.ndarray | None, Sequence[Any] | np.ndarray | None]


def add_inputs(
    folder: Folder, data: Dataset | None, run: "Run", order: np.ndarray, done: Callable[[float], None]
) -> dict[str, Any]:
    """Write them all, thumbnails of training examples in that order; give what the page has to know to show them."""
    known = run.store.examples.ids() or ((data.train_ids, data.test_ids) if data else (None, None))
    ids = any(own is not None for own in known)
    if data is None:
        if ids:
            _add_rows(folder, None, run, known, done)
        return {"inputs": "none", "ids": ids}
    shown_range = picture_range(data.x_train, data.value_range)
    if are_pictures(data.x_train, shown_range):
        sheet = _add_sheets(folder, data, shown_range, order, done)
        if ids:
            _add_rows(folder, None, run, known, lambda share: None)
        return {"inputs": "images", "ids": ids, "sheet": sheet}
    _add_rows(folder, data, run, known, done)
    return {"inputs": "texts" if is_text(data.x_train) else "features", "ids": ids}


def _add_sheets(
    folder: Folder,
    data: Dataset,
    shown_range: tuple[float, float] | None,
    order: np.ndarray,
    done: Callable[[float], None],
) -> dict[str, Any]:
    """Thumbnails: training examples as the gallery first shows them, test examples by index."""
    examples = data.n_train + data.n_test
    layout = chosen_layout(data.x_train, shown_range, examples)
    for split, inputs, rows, before in (
        ("train", data.x_train, order, 0),
        ("test", data.x_test, np.arange(data.n_test), data.n_train),
    ):

        def drawn(count: int, before: int = before) -> None:
            done((before + count) / examples)

        for number, content in enumerate(sheets(inputs, shown_range, rows, layout, drawn)):
            folder.add(f"{split}-{number}.webp", content)
    return layout.told


def _add_rows(folder: Folder, data: Dataset | None, run: "Run", known: Ids, done: Callable[[float], None]) -> None:
    """Ids where they are known, and texts or features if data are given, some examples to a file."""
    n_train, n_test = run.info.n_train, run.info.n_test
    examples = n_train + n_test
    letters = letters_for(data.x_train, n_train, examples) if data else 0
    targets = run.store.examples.targets() or (None, None)
    for split, inputs, ids, own, n, before in (
        ("train", data and data.x_train, known[0], targets[0], n_train, 0),
        ("test", data and data.x_test, known[1], targets[1], n_test, n_train),
    ):
        for number, start in enumerate(range(0, n, CHUNK)):
            rows = range(start, min(n, start + CHUNK))
            document = rows_as_json(inputs, rows, letters, own) if data else {}
            if ids is not None:
                document["ids"] = [shortened(str(ids[row]), ID_LETTERS) for row in rows]
            folder.add(f"{split}-inputs-{number}.js", script(f"{split}-inputs-{number}", document))
            done((before + rows[-1] + 1) / examples)


def letters_for(inputs: Any, n: int, examples: int) -> int:
    """The length at which texts are cut, so that all of them stay small; judged by some of these `n` inputs.

    Scripts are ASCII: a letter of most of the world's writing takes six bytes.
    """
    sample = [one_input(inputs, row) for row in np.unique(np.linspace(0, n - 1, SAMPLE).astype(int))] if n else []
    texts = [one[:MOST_LETTERS] for one in sample if isinstance(one, str) and one]
    together = "".join(texts)
    bytes_each = len(script("", together)) / max(1, len(together))
    return max(FEWEST_LETTERS, min(MOST_LETTERS, int(BYTES_IN_ALL / max(1, examples) / max(1.0, bytes_each))))


def is_text(inputs: Any) -> bool:
    return isinstance(one_input(inputs, 0), str)


def rows_as_json(inputs: Any, rows: range, letters: int, targets: np.ndarray | None = None) -> Rows:
    """{"texts": [...]} or {"names": [...], "features": [[[name's number, value], ...], ...], "more": [...]}.

    Targets that are no classes stand before the features.
    """
    ones = [one_input(inputs, row) for row in rows]
    if all(isinstance(one, str) for one in ones):
        return {"texts": [_cut(one, letters) for one in ones]}
    names: dict[str, int] = {}
    rows_of, more = [], []
    for row, one in zip(rows, ones):
        every = [("text", one)] if isinstance(one, str) else list(features(one))
        every = every if targets is None else [("target", targets[row]), *every]
        rows_of.append(
            [
                [names.setdefault(shortened(name, NAME_LETTERS), len(names)), cell(value)]
                for name, value in every[:FEATURES]
            ]
        )
        more.append(max(0, len(every) - FEATURES))
    return {"names": list(names), "features": rows_of, "more": more}


def cell(value: Any) -> str:
    """A value of a table as it is shown."""
    if is_missing(value):
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}".replace("-", "−")
    return shortened(str(value), CELL_LETTERS)


def _cut(text: str, letters: int) -> str:
    """The text with its line breaks, cut with an ellipsis where it is longer."""
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"
