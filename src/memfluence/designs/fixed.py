"""The contract of a design, and the paper's: `fixed`.

With `fixed` every trial keeps exactly subset_size examples, drawn uniformly without replacement: the paper's Algorithm
1 (Sec. 2), with keep = 0.7 by default. Trials are independent. With several keep fractions, trial k uses fraction k mod
F, so that any prefix of the trials serves all of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from memfluence.errors import DesignError
from memfluence.records import Kind, Plan, Trial
from memfluence.seeding import generator, random_subset


class Design(Protocol):
    """A design: the examples that each trial keeps.

    `trial(number)` is a function of the plan and the number alone: it does not change when the number of trials grows,
    nor with what was asked before. `tests/designs/test_designs.py` checks it for every design.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of trial; `Trial.kind` is a position in it. Refuses a plan that cannot be carried out."""
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


def subset_sizes(plan: Plan, smallest: int = 1) -> tuple[int, ...]:
    """round(keep * n_train) for each fraction, refused where it leaves no example in, or none out."""
    sizes = tuple(round(keep * plan.n_train) for keep in plan.keep)
    for keep, size in zip(plan.keep, sizes):
        if not smallest <= size <= plan.n_train - 1:
            raise DesignError(
                f"keep={keep:g} of {plan.n_train} training examples keeps {size};"
                f" it must keep at least {smallest} and leave at least one out."
            )
    return sizes


@dataclass(frozen=True)
class Fixed:
    plan: Plan
    repeats: int = 1
    limit: int | None = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The subset size of each kind."""
        return subset_sizes(self.plan)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(map(Kind, self.plan.keep, self.sizes))

    def trial(self, number: int) -> Trial:
        kind = number % len(self.sizes)
        rng = generator(self.plan.seed, "subset", number)
        return Trial(number, kind, random_subset(rng, self.plan.n_train, self.sizes[kind]), self.plan.seed)
