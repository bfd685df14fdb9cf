"""Groups: what models lose when a whole group of examples is left out.

Definition. From trials that keep or leave out whole groups G (`memfluence run --groups`):

    mem(G)      = E[share of G's members that are right | G kept] - E[the same | G left out]
    infl(G, j)  = P[right on test j | G kept] - P[right on test j | G left out]
    accuracy(G) = the mean of infl(G, j) over all test examples: what the group adds to the test accuracy

A cluster of duplicates is memorized as a group even where leaving out a single one changes nothing.

Where every trial keeps as many groups (the fixed, balanced and repeats designs), "left out" means that another group
was kept instead. All of these are then differences from the average group: accuracy(G) sums to 0 over groups, however
much each of them adds. `relative` says so. Trials of the lemma's design compare m groups with the same m - 1 without G.

Estimator. Differences of means between trials (Algorithm 1 with groups in place of examples): exact counts for infl,
as for examples; for the two means, each trial contributes one number, the share of right members or test examples.

Variance. infl has the errors of `estimators/intervals.py`; the means have Welch's (`estimators/real.py`). Members of
a group share their trials, so nothing is gained from their number but what the mean of a trial shows.

Failure cases. A run without groups has none to ask about. Welch's error is 0 where no two trials of an arm differ,
which is no certainty. NaN where a group was always or never kept. With few groups, few distinct subsets exist; a
value then describes these subsets, and no number of trials goes beyond them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Memorization, Memory, arms, real_memorization
from memfluence.estimators.counts import bits_at
from memfluence.records import Kind, Trials


@dataclass(frozen=True, eq=False)
class GroupScores:
    """The worth of each group; arrays of `memorization` and `accuracy` are (groups,)."""

    names: tuple[str, ...]
    sizes: np.ndarray  # (groups,) int64
    memorization: Memorization  # mean_in and mean_out: share of right members
    accuracy: Memorization  # mean_in and mean_out: test accuracy
    relative: bool  # both arms have as many groups: a group that is left out makes room for another

    def columns(self) -> dict[str, np.ndarray]:
        """Plain columns, one row per group."""
        mem, test = self.memorization, self.accuracy
        return {
            "group": np.array(self.names),
            "size": self.sizes,
            "memorization": mem.value,
            "stderr": mem.stderr,
            "accuracy_in": mem.mean_in,
            "accuracy_out": mem.mean_out,
            "test_accuracy_gain": test.value,
            "test_accuracy_gain_stderr": test.stderr,
            "trials_in": mem.trials_in,
            "trials_out": mem.trials_out,
        }


def group_trials(trials: Trials, codes: np.ndarray, memory: str | int | Memory | None = None) -> Trials:
    """The same trials with a column per group in place of a training example: which groups each of them kept.

    Every estimator takes them. `train_correct` says whether all members of the group were right.
    """
    if codes.shape != (trials.n_train,):
        raise InputError(f"There must be a group for each of {trials.n_train} training examples; got {codes.shape}.")
    n_groups = int(codes.max()) + 1
    needed = 8 * len(trials) * (8 * n_groups + min(4096, trials.n_train))
    Memory.of(memory).check(needed, "what each trial says of each group", "fewer groups or trials")
    _, first = np.unique(codes, return_index=True)
    kept = bits_at(trials.mask, first)  # (trials, groups)
    for start in range(0, trials.n_train, 4096):
        some = np.arange(start, min(trials.n_train, start + 4096))
        if (bits_at(trials.mask, some) != kept[:, codes[some]]).any():
            raise InputError("Some trials kept a part of a group; groups need a run made with `groups`.")
    right = np.equal(*_right_members(trials, codes, n_groups)[::-1])
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (kept, right)]
    return replace(trials, mask=packed[0], train_correct=packed[1], n_train=n_groups)


def group_scores(
    trials: Trials,
    kinds: Sequence[Kind],
    codes: np.ndarray,  # (n_train,) group of each training example
    names: Sequence[str],
    keep: float | None = None,
    *,
    memory: str | int | Memory | None = None,
) -> GroupScores:
    """Memorization of each group, and what it adds to the test accuracy."""
    grouped = group_trials(trials, codes, memory)
    chosen = arms(grouped, kinds, keep)
    kept = [np.unique(_ones(part.mask)) for part in (chosen.in_trials, chosen.out_trials)]  # groups in each trial
    sizes, members = _right_members(trials, codes, grouped.n_train)  # (groups,), (trials, groups)
    test = np.repeat(_ones(trials.test_correct)[:, None], grouped.n_train, axis=1)  # (trials, groups)
    return GroupScores(
        tuple(names),
        sizes,
        _shares(real_memorization(grouped, kinds, members, keep), sizes),
        _shares(real_memorization(grouped, kinds, test, keep), trials.n_test),
        relative=len(kept[0]) == 1 and kept[0].tolist() == kept[1].tolist(),
    )


def _shares(counts: Memorization, of: np.ndarray | int) -> Memorization:
    """Estimates about shares, from those about whole numbers of right examples, whose sums are exact."""
    names = ("value", "stderr", "lower", "upper", "mean_in", "mean_out")
    return replace(counts, **{name: getattr(counts, name) / of for name in names})


def _ones(packed: np.ndarray) -> np.ndarray:
    """The number of bits that are 1 in each row; padding bits are 0."""
    return np.array([np.bitwise_count(bits).sum() for bits in packed], np.int64)


def _right_members(trials: Trials, codes: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """The number of each group's members (groups,), and of those that each trial got right (trials, groups)."""
    counts = np.empty((len(trials), n_groups), np.int64)
    for row, bits in enumerate(trials.train_correct):
        right = np.unpackbits(bits, count=trials.n_train, bitorder="little")
        counts[row] = np.bincount(codes, weights=right, minlength=n_groups)
    return np.bincount(codes, minlength=n_groups), counts
