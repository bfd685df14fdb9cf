"""Independent sides of runs, and how well they agree: many draws of trials, and what permuted masks give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms, Influence, Memory, arms, memorization_of
from memfluence.experiments._result import LEAST_TRIALS
from memfluence.findings.agreement import (
    INFLUENCE,
    MEMORIZATION,
    Agreement,
    Part,
    agreement,
    influence_agreement,
)
from memfluence.findings.cross_fit import halves
from memfluence.records import Trials
from memfluence.runs import Run
from memfluence.seeding import generator

CUTS = 2**20  # numbers of draws that cut a side to size; those below split a run


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison: some trials of a run, and what they say."""

    run: Run
    arms: Arms
    memorization: np.ndarray  # (n_train,)


@dataclass(frozen=True)
class Curves:
    """How two sides agree: on memorization, on influence within classes, and across classes (None: not asked for)."""

    memorization: Agreement
    same_class: Agreement
    any_class: Agreement | None


def check_draws(splits: int, permutations: int) -> None:
    """Refuse numbers of draws that say nothing."""
    if isinstance(splits, bool) or not isinstance(splits, int) or splits < 2:
        raise InputError(f"The 'splits' parameter must be an integer >= 2, to give a spread. Got {splits!r} instead.")
    if permutations < 0:
        raise InputError(f"The number of permutations must be 0 or more. Got {permutations} instead.")


def trials_each(run: Run, others: Sequence[Run] = (), keep: float | None = None, wanted: int | None = None) -> int:
    """How many trials each side of every comparison has: as many as all can give, at most `wanted`.

    The first run gives two sides, so at most half of its trials.
    """
    there = [len(of_keep(run, keep)) // 2, *(len(of_keep(other, keep)) for other in others)]
    most = min(there)
    if most < LEAST_TRIALS:
        few = run if most == there[0] else others[there.index(most) - 1]
        needed = LEAST_TRIALS * (2 if few is run else 1)
        raise InputError(
            f"{few.path} has {len(of_keep(few, keep))} trial(s), too few for"
            f" {'two independent halves' if few is run else 'a comparison'}; run at least {needed}, better hundreds."
        )
    if wanted is not None and not LEAST_TRIALS <= wanted <= most:
        raise InputError(
            f"The 'trials' of each side must be from {LEAST_TRIALS} to {most}, which is what the runs can give. Got"
            f" {wanted!r} instead."
        )
    return most if wanted is None else wanted


def sides(
    run: Run,
    others: Sequence[Run],
    trials: int,
    *,
    splits: int,
    keep: float | None = None,
    seed: int = 0,
    memory: str | int | None = None,
) -> Iterator[list[Side]]:
    """For each split: two disjoint sides of the first run, then one of each other run, drawn anew."""
    whole, *rest = (of_keep(one, keep) for one in (run, *others))
    size = sum(2 * some.mask.nbytes + some.test_correct.nbytes for some in (whole, *rest))
    Memory.of(memory).check(size, "some of the trials once more", "runs of fewer trials")
    for number in range(splits):
        drawn = [*halves(whole, seed, number), *rest]
        yield [
            _side(one, _cut(some, trials, seed, CUTS * (k + 1) + number), keep)
            for k, (one, some) in enumerate(zip((run, run, *others), drawn))
        ]


def on_memorization(first: Side, second: Side, *, mem: float, permuted: bool = False) -> Agreement:
    """How two sides agree on memorization, at `mem` and at the thresholds of the grid."""
    values = [memorization_of(side.arms).value if permuted else side.memorization for side in (first, second)]
    return agreement([Part(values[0], values[1], np.True_, np.True_)], np.union1d(MEMORIZATION, [mem]))


def compared(
    first: Side,
    second: Side,
    *,
    mem: float,
    infl: float,
    any_class: bool,
    memory: str | int | None = None,
    permuted: bool = False,
) -> Curves:
    """How two sides agree, at `mem` and `infl` and at the thresholds of the grids.

    With `permuted`, their arms have permuted masks, and whom they find memorized is kept.
    """
    estimates = [Influence(side.arms, memory=memory) for side in (first, second)]
    memorized = (first.memorization >= mem, second.memorization >= mem)
    codes, levels = first.run.label_codes, np.union1d(INFLUENCE, [infl])
    same, *every = (
        influence_agreement(estimates[0], estimates[1], memorized, *codes, levels, same_class=same_class)
        for same_class in ((True, False) if any_class else (True,))
    )
    return Curves(on_memorization(first, second, mem=mem, permuted=permuted), same, every[0] if every else None)


def by_chance(first: Side, second: Side, *, permutations: int, seed: int, **options: Any) -> list[Curves]:
    """The same with masks dealt out anew on both sides, where no training example can matter, for each permutation.

    `options` are those of `compared`.
    """
    size = bool(permutations) * sum(side.arms.in_trials.mask.nbytes for side in (first, second))
    Memory.of(options.get("memory")).check(size, "permuted masks", "--permutations 0")
    found = []
    for number in range(permutations):
        dealt = [
            replace(side, arms=side.arms.permuted(generator(seed, "permutation", 2 * number + k)))
            for k, side in enumerate((first, second))
        ]
        found.append(compared(dealt[0], dealt[1], permuted=True, **options))
    return found


def _side(run: Run, trials: Trials, keep: float | None) -> Side:
    chosen = arms(trials, run.info.kinds, keep)
    return Side(run, chosen, memorization_of(chosen).value)


def of_keep(run: Run, keep: float | None) -> Trials:
    """The trials of one keep fraction, of both arms."""
    chosen = arms(run.trials, run.info.kinds, keep)
    numbers = np.union1d(chosen.in_trials.numbers, chosen.out_trials.numbers)
    return run.trials if len(numbers) == len(run.trials) else run.trials.select(np.isin(run.trials.numbers, numbers))


def _cut(trials: Trials, wanted: int, seed: int, number: int) -> Trials:
    """About so many of the trials at random: whole clusters, of each kind the same share."""
    if wanted >= len(trials):
        return trials
    cluster, chosen = trials.numbers // trials.cluster, np.zeros(len(trials), dtype=bool)
    rng = generator(seed, "resample", number)
    for kind in np.unique(trials.kinds):
        ids = np.unique(cluster[trials.kinds == kind])
        some = rng.permutation(ids)[: round(len(ids) * wanted / len(trials))]
        chosen |= (trials.kinds == kind) & np.isin(cluster, some)
    return trials.select(chosen)
