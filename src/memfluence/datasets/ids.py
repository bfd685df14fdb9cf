"""Ids of examples: what the user's own data call them, so that a row of a table can be found there again.

Of a DataFrame or Series they are its index, of a CSV the rows as pandas counts them or a column, of a folder its paths.
Where data call their examples nothing, an id is the position. Ids are whole numbers, floats or texts, one kind in a
dataset; whatever else an index holds (dates, several levels) is text, as Python prints it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from memfluence.errors import DatasetError

_LARGEST = 2**63


def index_of(inputs: Any, labels: Any, where: str) -> list[Any] | None:
    """The index of a pandas object of inputs, or else of labels; None where it only counts from 0.

    Inputs and labels that both have one must agree: they would be joined row by row, whatever their indices say.
    """
    indices = [part.index for part in (inputs, labels) if hasattr(part, "iloc")]
    differ = len(indices) == 2 and not indices[0].equals(indices[1])
    for row, (one, other) in enumerate(zip(*indices) if differ else ()):
        if one != other and not (one != one and other != other):  # two NaN are alike
            raise DatasetError(
                f"{where} inputs and labels have different indices: row {row} is {one!r:.60} in the inputs and"
                f" {other!r:.60} in the labels. Give both in one order (y.loc[x.index]); if they are in one order"
                " already, give the labels without their index (y.to_numpy())."
            )
    own = indices[0].tolist() if indices else []
    return None if own == list(range(len(own))) else own


def ids_of_one_kind(train: Any, test: Any) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
    """Ids of both splits as whole numbers, floats or texts; None for a split that has none.

    Sequences that make their entries when asked, such as `Files`, are texts and stay as they are.
    """
    if not all(ids is None or isinstance(ids, list | tuple) or hasattr(ids, "tolist") for ids in (train, test)):
        return train, test
    train, test = (
        [_plain(one) for one in (ids.tolist() if hasattr(ids, "tolist") else ids or ())] for ids in (train, test)
    )
    kinds = {*map(type, train), *map(type, test)}
    kind: Any = str
    if kinds == {int} and all(-_LARGEST <= one < _LARGEST for one in (*train, *test)):
        kind = int
    elif kinds <= {int, float} and float in kinds:
        kind = float
    return [kind(one) for one in train] or None, [kind(one) for one in test] or None


def first_repeated(ids: Sequence[Any] | None) -> Any:
    """The first id that several examples have; None where each is there once."""
    if not isinstance(ids, list) or len(set(ids)) == len(ids):
        return None
    return next(one for one, times in Counter(ids).items() if times > 1)


def _plain(one: Any) -> Any:
    return one.item() if isinstance(one, np.generic) else one
