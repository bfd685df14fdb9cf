"""High-influence pairs by training example, as the paper's figures 4 to 6 show them."""

from dataclasses import dataclass

import numpy as np

from memfluence.findings import Pairs

__all__ = ["Group", "groups_of"]


@dataclass(frozen=True, eq=False)
class Group:
    """One training example and the pairs that it is in, largest influence first."""

    train_index: int
    rows: np.ndarray  # positions in `Pairs`


def groups_of(pairs: Pairs, count: int, *, spread: bool = False) -> list[Group]:
    """Up to `count` training examples with their pairs, in the order of their highest influence.

    The first ones, or with `spread` ones evenly spaced over the whole order, so that a figure does not show the
    strongest alone (the paper's last appendix).
    """
    _, first = np.unique(pairs.train_index, return_index=True)
    order = np.sort(first)  # pairs come strongest first, so this is the order of the highest influence
    if spread and len(order) > count:
        order = order[np.linspace(0, len(order) - 1, count).astype(int)]
    return [
        Group(int(train), np.flatnonzero(pairs.train_index == train)) for train in pairs.train_index[order[:count]]
    ]
