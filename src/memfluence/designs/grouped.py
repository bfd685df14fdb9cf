"""Groups: examples that are kept or left out together (a class, a source, a cluster of duplicates).

Any other design is drawn over the groups in place of the examples: `keep` is the fraction of the groups, and an example
is kept if its group is. What trials say is then about groups: how much models lose on a test example when the whole
group is gone, which for duplicates is what leaving out one of them cannot show.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from memfluence.designs.fixed import Design
from memfluence.errors import DesignError
from memfluence.npzfiles import read_npy
from memfluence.records import Kind, Plan, Trial


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each training example, and the names of the groups."""

    codes: np.ndarray  # (n_train,) int64
    names: tuple[str, ...]  # by code, in the order of the values given

    @cached_property
    def digest(self) -> str:
        content = "\0".join(self.names).encode() + self.codes.astype("<i8").tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class Grouped:
    base: Design = field(repr=False)  # of the groups
    groups: Groups = field(repr=False)

    @cached_property
    def plan(self) -> Plan:
        given = self.base.plan
        options = {**given.options, "groups": self.groups.digest, "n_groups": given.n_train}
        return replace(given, n_train=len(self.groups.codes), options=options)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        sizes = np.unique(np.bincount(self.groups.codes))
        each = int(sizes[0]) if len(sizes) == 1 else None
        return tuple(
            replace(kind, subset_size=None if each is None or kind.subset_size is None else each * kind.subset_size)
            for kind in self.base.kinds
        )

    @property
    def repeats(self) -> int:
        return self.base.repeats

    @property
    def limit(self) -> int | None:
        return self.base.limit

    def trial(self, number: int) -> Trial:
        drawn = self.base.trial(number)
        return replace(drawn, mask=drawn.mask[self.groups.codes])


def groups_from(given: Any, n_train: int, attributes: Mapping[str, np.ndarray], labels: np.ndarray) -> Groups:
    """Groups from an array of one value per training example, a .npy file of one, or the name of an attribute.

    `class` names the labels; other names are those of `attributes`, with or without `train_` before them.
    """
    values = _named(given, attributes, labels) if isinstance(given, str | Path) else np.asarray(given)
    if values.shape != (n_train,) or values.dtype.kind not in "biuU":
        raise DesignError(
            f"Groups must be {n_train} integers or texts, one per training example. Got {values.dtype} of"
            f" {values.shape} instead."
        )
    names, codes = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise DesignError("There must be at least two groups, so that one can be left out; all examples are in one.")
    return Groups(codes.astype(np.int64), tuple(str(name) for name in names.tolist()))


def _named(given: str | Path, attributes: Mapping[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    name = str(given)
    if name.endswith(".npy"):
        if not Path(name).is_file():
            raise DesignError(f"There is no file of groups {name}; give a .npy with one value per training example.")
        return read_npy(Path(name), DesignError)
    of_train = {key.removeprefix("train_"): of for key, of in attributes.items() if key.startswith("train_")}
    known = {"class": labels, **of_train}
    if name.removeprefix("train_") not in known:
        raise DesignError(
            f"There is no attribute {name!r} to group by; choose one of {', '.join(sorted(known))}, or a .npy file."
        )
    return np.asarray(known[name.removeprefix("train_")])
