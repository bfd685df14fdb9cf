"""Inputs that are no pictures: a text, or the first features with their names."""

from typing import Any

import numpy as np

from memfluence.datasets import features, is_missing, one_input
from memfluence.report.explorer.scripts import script
from memfluence.wording import shortened

__all__ = ["Rows", "is_text", "letters_for", "rows_as_json"]

FEATURES = 12
CELL_LETTERS, NAME_LETTERS = 40, 40
BYTES_IN_ALL = 60_000_000
FEWEST_LETTERS, MOST_LETTERS = 160, 5000
SAMPLE = 64

Rows = dict[str, Any]


def letters_for(inputs: Any, n: int, examples: int) -> int:
    """How much of each text is shown, so that all of them stay small; judged by some of these `n` inputs.

    Scripts are ASCII: a letter of most of the world's writing takes six bytes.
    """
    sample = [one_input(inputs, row) for row in np.unique(np.linspace(0, n - 1, SAMPLE).astype(int))] if n else []
    texts = [one[:MOST_LETTERS] for one in sample if isinstance(one, str) and one]
    together = "".join(texts)
    bytes_each = len(script("", together)) / max(1, len(together))
    return max(FEWEST_LETTERS, min(MOST_LETTERS, int(BYTES_IN_ALL / max(1, examples) / max(1.0, bytes_each))))


def is_text(inputs: Any) -> bool:
    return isinstance(one_input(inputs, 0), str)


def rows_as_json(inputs: Any, rows: range, letters: int) -> Rows:
    """{"texts": [...]} or {"names": [...], "features": [[[name's number, value], ...], ...], "more": [...]}."""
    ones = [one_input(inputs, row) for row in rows]
    if all(isinstance(one, str) for one in ones):
        return {"texts": [_cut(one, letters) for one in ones]}
    names: dict[str, int] = {}
    rows_of, more = [], []
    for one in ones:
        every = [("text", one)] if isinstance(one, str) else list(features(one))
        rows_of.append(
            [
                [names.setdefault(shortened(name, NAME_LETTERS), len(names)), _cell(value)]
                for name, value in every[:FEATURES]
            ]
        )
        more.append(max(0, len(every) - FEATURES))
    return {"names": list(names), "features": rows_of, "more": more}


def _cell(value: Any) -> str:
    if is_missing(value):
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}".replace("-", "−")
    return shortened(str(value), CELL_LETTERS)


def _cut(text: str, letters: int) -> str:
    """The text with its line breaks, cut with an ellipsis where it is longer."""
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"
