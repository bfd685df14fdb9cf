"""`bernoulli`: every example is kept independently with probability keep, so subset sizes vary from trial to trial.

With keep = 0.5 all subsets are equally likely, which is what Banzhaf values need. A subset may by chance miss a class
or be empty; such a trial fails on its own and the others go on.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memfluence.designs.fixed import subset_sizes
from memfluence.records import Kind, Plan, Trial
from memfluence.seeding import generator


@dataclass(frozen=True)
class Bernoulli:
    plan: Plan
    repeats: int = 1
    limit: int | None = None

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        subset_sizes(self.plan)  # refuses a fraction whose mean size is 0 or n_train
        return tuple(Kind(keep, None) for keep in self.plan.keep)

    def trial(self, number: int) -> Trial:
        kind = number % len(self.kinds)
        raw = generator(self.plan.seed, "subset", number).bit_generator.random_raw(self.plan.n_train)  # (n_train,)
        mask = raw < np.uint64(int(self.plan.keep[kind] * 2.0**64))
        return Trial(number, kind, mask, self.plan.seed)
