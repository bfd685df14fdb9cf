"""The contract of a design, and what all of them share."""

from collections.abc import Iterable
from numbers import Real
from typing import Any, Protocol

from memfluence.errors import DesignError, shortened
from memfluence.records import Kind, Plan, Trial

__all__ = ["Design", "checked_keep", "checked_seed", "subset_size"]


class Design(Protocol):
    """A design: the examples that each trial keeps.

    `trial(number)` is a function of the plan and the number alone: it does not change when the number of trials grows,
    nor with what was asked before. `tests/designs/test_designs.py` checks it for every design.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of trial; `Trial.kind` is a position in it."""
        ...

    @property
    def repeats(self) -> int:
        """The number of consecutive trials that share one mask."""
        ...

    @property
    def limit(self) -> int | None:
        """The number of trials; None if there is no end."""
        ...

    def trial(self, number: int) -> Trial: ...


def checked_keep(keep: float | Iterable[float]) -> tuple[float, ...]:
    """One or several distinct fractions in (0, 1)."""
    given: list[Any] = [keep] if isinstance(keep, Real) else list(keep) if isinstance(keep, Iterable) else []
    for value in given:
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
            raise DesignError(f"The 'keep' parameter must be a float in (0, 1). Got {shortened(value)} instead.")
    if not given or len(set(given)) != len(given):
        raise DesignError(
            f"The 'keep' parameter must hold distinct fractions, at least one. Got {shortened(given)} instead."
        )
    return tuple(float(value) for value in given)


def checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise DesignError(f"The 'seed' parameter must be an integer in [0, 2**63). Got {shortened(seed)} instead.")
    return seed


def subset_size(keep: float, n_train: int, smallest: int = 1) -> int:
    """round(keep * n_train), refused where it leaves no example in, or none out."""
    size = round(keep * n_train)
    if not smallest <= size <= n_train - 1:
        raise DesignError(
            f"keep={keep:g} of {n_train} training examples keeps {size};"
            f" it must keep at least {smallest} and leave at least one out."
        )
    return size
