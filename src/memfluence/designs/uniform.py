"""`uniform`: the size of each subset is drawn uniformly from smallest, ..., n_train, and then the subset of that size.

Every size matters equally, which is what Shapley values need (`estimators/shapley.py`). A learner cannot be trained on
no example, so the empty subset is not drawn: its worth has to be said. `uniform:20` starts at subsets of 20, for
learners that fail on fewer (or on those of one class); the values are then those of larger subsets only.

Subsets that contain an example are larger on average than those that do not, so comparing the two sides, as
memorization and influence do, would mostly measure their sizes. The kind of these trials says that they serve neither
side, and those estimators refuse them.
"""

from dataclasses import dataclass
from functools import cached_property

from memfluence.errors import DesignError
from memfluence.records import Kind, Plan, Trial
from memfluence.seeding import generator, random_subset


@dataclass(frozen=True)
class Uniform:
    plan: Plan  # options: {"smallest": size}
    repeats: int = 1
    limit: int | None = None

    @cached_property
    def smallest(self) -> int:
        size: int = self.plan.options["smallest"]
        if not 1 <= size < self.plan.n_train:
            raise DesignError(
                f"The smallest subset of the uniform design must be an integer in [1, {self.plan.n_train - 1}]."
                f" Got {size!r} instead."
            )
        return size

    def __post_init__(self) -> None:
        _ = self.smallest

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (Kind(None, None, "neither"),)

    def trial(self, number: int) -> Trial:
        rng = generator(self.plan.seed, "subset", number)
        sizes = self.plan.n_train - self.smallest + 1
        size = self.smallest + int(rng.bit_generator.random_raw()) % sizes  # bias below sizes / 2**64
        return Trial(number, 0, random_subset(rng, self.plan.n_train, size), self.plan.seed)
