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

from memfluence.designs.fixed import Fixed, subset_sizes
from memfluence.records import Kind


@dataclass(frozen=True)
class Lemma(Fixed):
    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size - less for size in subset_sizes(self.plan, smallest=2) for less in (0, 1))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        arms: tuple[Literal["in", "out"], ...] = ("in", "out")
        return tuple(Kind(self.plan.keep[k // 2], size, arms[k % 2]) for k, size in enumerate(self.sizes))
