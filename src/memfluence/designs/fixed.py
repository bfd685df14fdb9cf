"""`fixed`: every trial keeps exactly subset_size examples, drawn uniformly without replacement.

The paper's Algorithm 1 (Sec. 2), with keep = 0.7 by default. Trials are independent. With several keep fractions,
trial k uses fraction k mod F, so that any prefix of the trials serves all of them.
"""

from dataclasses import dataclass
from functools import cached_property

from memfluence.designs._design import subset_size
from memfluence.records import Kind, Plan, Trial
from memfluence.seeding import generator, random_subset

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed:
    plan: Plan
    repeats: int = 1
    limit: int | None = None

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(subset_size(keep, self.plan.n_train) for keep in self.plan.keep)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(Kind(keep, size) for keep, size in zip(self.plan.keep, self._sizes))

    def trial(self, number: int) -> Trial:
        kind = number % len(self.kinds)
        rng = generator(self.plan.seed, "subset", number)
        return Trial(number, kind, random_subset(rng, self.plan.n_train, self._sizes[kind]), self.plan.seed)
