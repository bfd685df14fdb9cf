"""Inputs that are no pictures: a text, or the first features with their names."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from memfluence.report._wording import shortened

__all__ = ["Rows", "is_text", "letters_for", "rows_as_json"]

FEATURES = 12
CELL_LETTERS, NAME_LETTERS = 40, 40
LETTERS_IN_ALL = 60_000_000
FEWEST_LETTERS, MOST_LETTERS = 160, 5000

Rows = dict[str, Any]


def letters_for(examples: int) -> int:
    """How much of each text is shown, so that all of them stay small."""
    return max(FEWEST_LETTERS, min(MOST_LETTERS, LETTERS_IN_ALL // max(1, examples)))


def is_text(inputs: Any) -> bool:
    return isinstance(_row(inputs, 0), str)


def rows_as_json(inputs: Any, rows: range, letters: int) -> Rows:
    """{"texts": [...]} or {"names": [...], "features": [[[name's number, value], ...], ...], "more": [...]}."""
    ones = [_row(inputs, row) for row in rows]
    if all(isinstance(one, str) for one in ones):
        return {"texts": [_cut(one, letters) for one in ones]}
    names: dict[str, int] = {}
    features, more = [], []
    for one in ones:
        every = [("text", one)] if isinstance(one, str) else list(_features(one))
        features.append(
            [
                [names.setdefault(shortened(name, NAME_LETTERS), len(names)), _cell(value)]
                for name, value in every[:FEATURES]
            ]
        )
        more.append(max(0, len(every) - FEATURES))
    return {"names": list(names), "features": features, "more": more}


def _row(inputs: Any, row: int) -> Any:
    """One input: an array where there is any way to have one."""
    if hasattr(inputs, "iloc"):  # pandas
        return inputs.iloc[row]
    if hasattr(inputs, "tocsr"):  # SciPy, whose rows come in several shapes
        return inputs[[row]].tocoo()
    one = inputs[row]
    return one if isinstance(one, str) or not hasattr(one, "shape") else np.asarray(one)


def _features(one: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, in order; of a sparse row those that are not zero."""
    if hasattr(one, "tocoo"):
        yield from ((f"feature {column}", number) for column, number in zip(one.col, one.data))
    elif hasattr(one, "items"):  # a row of a table, a dict
        yield from ((str(name), value) for name, value in one.items())
    elif isinstance(one, np.ndarray) and one.ndim:
        yield from ((f"feature {column}", number) for column, number in enumerate(one.flat))
    elif isinstance(one, list | tuple):
        yield from ((f"feature {column}", number) for column, number in enumerate(one))
    else:
        yield "value", one


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}".replace("-", "−")
    return shortened(str(value), CELL_LETTERS)


def _cut(text: str, letters: int) -> str:
    """The text with its line breaks, cut with an ellipsis where it is longer."""
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"
