"""`lemma`: trials alternate between subset sizes m and m - 1, as in the paper's Lemma 2.1 (appendix A).

infl_m compares A on I + i with A on I for I of size m - 1. A subset of size m that contains i is distributed as I +
i, and a subset of size m - 1 that does not contain i as I. So the first term comes from the m-trials alone (arm "in")
and the second from the (m-1)-trials alone (arm "out"): unbiased for infl_m exactly, at the price of using each trial
for one term only. The fixed design uses every trial twice, and its held-out arm has m other examples instead of m -
1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from memfluence.designs._design import subset_size
from memfluence.records import Kind, Plan, Trial
from memfluence.seeding import generator, random_subset

__all__ = ["Lemma"]


@dataclass(frozen=True)
class Lemma:
    plan: Plan
    repeats: int = 1
    limit: int | None = None

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        sizes = [subset_size(keep, self.plan.n_train, smallest=2) for keep in self.plan.keep]
        return tuple(size - less for size in sizes for less in (0, 1))

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        arms: tuple[Literal["in", "out"], ...] = ("in", "out")
        return tuple(Kind(self.plan.keep[k // 2], size, arms[k % 2]) for k, size in enumerate(self._sizes))

    def trial(self, number: int) -> Trial:
        kind = number % len(self.kinds)
        rng = generator(self.plan.seed, "subset", number)
        return Trial(number, kind, random_subset(rng, self.plan.n_train, self._sizes[kind]), self.plan.seed)
