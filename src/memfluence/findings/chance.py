"""The influence of pairs that permuted masks select: what a histogram of selected pairs would be by chance alone."""

from collections.abc import Sequence

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Influence, Memory, arms, memorization_of
from memfluence.findings._selection import tested_blocks
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

__all__ = ["influences_by_chance"]


def influences_by_chance(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    mem: float,
    infl: float,
    same_class: bool = True,
    keep: float | None = None,
    permutations: int = 5,
    seed: int = 0,
    memory: str | int | Memory | None = None,
) -> list[np.ndarray]:
    """For each permutation the influences at or above the threshold, ascending.

    The memorized set is held fixed. They are as many as `high_influence_pairs` with the same seed counts in
    `permuted_counts`, where it is said what they mean.
    """
    if permutations < 0:
        raise InputError(f"The number of permutations must be 0 or more. Got {permutations} instead.")
    chosen = arms(trials, kinds, keep)
    memorized = np.flatnonzero(memorization_of(chosen).value >= mem)
    blocks = list(tested_blocks(memorized, train_labels, test_labels, same_class))
    found = []
    for number in range(permutations):
        permuted = Influence(chosen.permuted(generator(seed, "permutation", number)), memory=memory)
        found.append(np.sort(permuted.at(*permuted.at_least(infl, blocks)).value))
    return found
