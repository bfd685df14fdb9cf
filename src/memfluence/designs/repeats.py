"""`repeats`: several models per mask, with different initialisation and order.

Outcomes of one mask differ by the learner's own randomness alone, which is what a noise ceiling needs (how well can any
attribution predict an outcome that repeats only so well?). Trials that share a mask are not independent, so standard
errors count masks, not trials.
"""

from dataclasses import dataclass
from functools import cached_property

from memfluence.designs.fixed import Fixed
from memfluence.errors import DesignError
from memfluence.records import Kind, Plan, Trial


@dataclass(frozen=True)
class Repeats:
    plan: Plan  # options: {"repeats": R}
    limit: int | None = None

    def __post_init__(self) -> None:
        _ = self.repeats

    @cached_property
    def repeats(self) -> int:
        count: int = self.plan.options["repeats"]
        if count < 2:
            raise DesignError(f"The repeats of the design must be an integer >= 2. Got {count!r} instead.")
        return count

    @cached_property
    def _masks(self) -> Fixed:
        return Fixed(self.plan)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self._masks.kinds

    def trial(self, number: int) -> Trial:
        shared = self._masks.trial(number // self.repeats)
        return Trial(number, shared.kind, shared.mask, self.plan.seed)
