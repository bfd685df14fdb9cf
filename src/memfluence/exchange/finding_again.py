"""Published pairs in a run of one's own: the influence that it gives them, and the rank of the training example.

The rank of a pair's training example is its place among the training examples of its class by influence on the pair's
test example: 1 is the most influential one, and examples of equal influence share the better place. In a run that knows
nothing all places are equally likely, so the middle of the class is what to expect by chance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from memfluence.exchange.published import Published
from memfluence.runs import Run, Table


@dataclass(frozen=True, eq=False)
class FoundAgain:
    """One entry per published pair, in the file's order."""

    train_index: np.ndarray  # (pairs,)
    test_index: np.ndarray
    label: np.ndarray
    influence_published: np.ndarray
    influence: np.ndarray  # that the run gives the pair; NaN where its trials cannot
    stderr: np.ndarray
    memorization: np.ndarray  # that the run gives the training example
    rank: np.ndarray  # int64, of the training example among its class; 1 is the most influential
    class_size: np.ndarray  # int64, training examples of the class
    found: np.ndarray  # bool, whether the run selects the pair as well

    def table(self) -> Table:
        return Table(dict(vars(self)))

    def summary(self) -> dict[str, Any]:
        """Means and counts over all pairs."""
        here, there = self.influence, self.influence_published.astype(float)
        known = np.isfinite(here)
        varies = known.sum() > 1 and here[known].std() > 0 and there[known].std() > 0
        any_pairs = len(there) > 0
        return {
            "pairs": len(there),
            "mean_influence_published": float(there.mean()) if any_pairs else None,
            "mean_influence_here": float(here[known].mean()) if known.any() else None,
            "correlation": float(np.corrcoef(there[known], here[known])[0, 1]) if varies else None,
            "most_influential_of_class": int((self.rank == 1).sum()),
            "median_rank_in_class": float(np.median(self.rank)) if any_pairs else None,
            "found": int(self.found.sum()),
            "among_first_5_of_class": int((self.rank <= 5).sum()),
            "median_rank_by_chance": float(np.median((self.class_size + 1) / 2)) if any_pairs else None,
        }


def found_again(
    run: Run,
    published: Published,
    *,
    mem: float = 0.25,
    infl: float = 0.15,
    keep: float | None = None,
    memory: str | int | None = None,
) -> FoundAgain:
    """The pairs of a file as the run has them; found are those that it selects itself at `mem` and `infl`."""
    train, test = np.asarray(published.train_index), np.asarray(published.test_index)
    estimates, codes = run.influence_estimates(keep, memory=memory), run.label_codes
    here, memorization = estimates.at(train, test), run.estimate_memorization(keep).value[train]
    rank, size = (np.zeros(len(train), dtype=np.int64) for _ in range(2))
    for j in np.unique(test):
        members = np.flatnonzero(codes[0] == codes[1][j])
        column = estimates.block(members, [j])[:, 0]
        of_test = np.flatnonzero(test == j)
        own = column[np.searchsorted(members, train[of_test])]
        rank[of_test] = 1 + (column[None, :] > own[:, None]).sum(axis=1)
        size[of_test] = len(members)
    return FoundAgain(
        train_index=train,
        test_index=test,
        label=run.classes[codes[0][train]],
        influence_published=np.asarray(published.influence),
        influence=here.value,
        stderr=here.stderr,
        memorization=memorization,
        rank=rank,
        class_size=size,
        found=(here.value >= infl) & (memorization >= mem),
    )
