"""`balanced`: within each block of trials, the numbers of times that examples are kept differ by at most one.

Every trial still keeps exactly subset_size examples, and each trial on its own is still a uniform subset (the
construction treats all examples alike). Balance removes the variance that comes from unequal counts in and out; the
trials of a block are no longer independent of each other, blocks are.

Construction, in integers: example i owes the block c_i appearances, floor or ceil of block * subset_size / n_train.
With r trials left, a trial must include i with probability c_i / r. Systematic sampling in a fresh random order does
that with exactly subset_size picks: lay the c_i end to end on a line of length r * subset_size and pick whoever
covers the points u, u + r, u + 2r, ...; c_i <= r, so nobody is picked twice, and c_i = r is always picked, so no debt
is left at the end.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from memfluence.designs.fixed import Fixed
from memfluence.errors import DesignError
from memfluence.records import Trial
from memfluence.seeding import generator, random_subset

MOST_TRIALS, MOST_BITS = 10_000, 2**28  # of a block; bits are trials times examples
DEFAULT_BLOCK = 10  # with keep 0.7: every example is in 7 trials of each 10 and out of 3


@dataclass(frozen=True)
class Balanced(Fixed):  # the plan's options: {"block": trials per block}
    _latest: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        _ = self.block

    @cached_property
    def block(self) -> int:
        block: int = self.plan.options["block"]
        if block < 2:
            raise DesignError(f"The block of the balanced design must be an integer >= 2. Got {block!r} instead.")
        if block > MOST_TRIALS or block * self.plan.n_train > MOST_BITS:  # a block is dealt as a whole
            raise DesignError(
                f"A block of {block} trials of {self.plan.n_train} examples is too large to be dealt; choose one of at"
                f" most {min(MOST_TRIALS, max(2, MOST_BITS // self.plan.n_train))} (balanced:{DEFAULT_BLOCK} is usual)."
            )
        return block

    def trial(self, number: int) -> Trial:
        position, kind = divmod(number, len(self.sizes))
        masks = self._block_masks(kind, position // self.block)
        return Trial(number, kind, masks[position % self.block], self.plan.seed)

    def _block_masks(self, kind: int, which: int) -> np.ndarray:
        """Masks of one block (block, n_train); the latest block of each kind is kept, since trials come in order."""
        if (kind, which) not in self._latest:
            for stale in [key for key in self._latest if key[0] == kind]:
                del self._latest[stale]
            rng = generator(self.plan.seed, "subset", which * len(self.sizes) + kind)
            self._latest[kind, which] = _deal(rng, self.plan.n_train, self.sizes[kind], self.block)
        return self._latest[kind, which]


def _deal(rng: np.random.Generator, n: int, size: int, block: int) -> np.ndarray:
    owed = np.full(n, block * size // n, dtype=np.int64)  # (n,)
    owed += random_subset(rng, n, block * size % n)
    masks = np.zeros((block, n), dtype=bool)
    for k in range(block):
        left = block - k
        order = np.argsort(rng.bit_generator.random_raw(n), kind="stable")  # (n,)
        ends = np.cumsum(owed[order])  # (n,) where each example's stretch ends on the line
        start = int(rng.bit_generator.random_raw()) % left  # bias below block / 2**64
        points = start + left * np.arange(size)  # (size,)
        masks[k, order[np.searchsorted(ends, points, side="right")]] = True
        owed -= masks[k]
    return masks
