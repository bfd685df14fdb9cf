"""High-influence pairs: memorized training examples that carry a test example.

Definition (the paper's Sec. 2, "Selection of high-influence pairs"). All (i, j) with mem(i) >= 0.25, infl(i, j) >=
0.15 and the same label. The last condition comes from the long-tail theory, which explains gains within a
subpopulation, and keeps noise out; `same_class=False` drops it.

Estimator. Both values as in `estimators/`, compared with the thresholds in float64 as they are.

How many are chance? The same selection is made from trials whose masks were dealt out anew, where no training example
can matter: noise alone lifts some of the n_train * n_test estimates over the threshold. `expected_by_chance` is the
mean of that count over a few permutations, with the memorized set held fixed, and `permuted_counts` has them all. Where
it is not small against the number of pairs found, most pairs may be noise (138 trials on CIFAR-100: 25,811 found, about
22,900 by chance; the paper, from 4000 trials: 1015 found), and `warning` says so.

Error control. With `fdr`, pairs are selected by p-values instead (`estimators/significance.py`): every pair of a
memorized training example and a test example of its class is tested against infl <= `null`, and those are kept whose
false discovery rate is at most `fdr`. A threshold on influence may be asked for in addition; it can only drop pairs,
and the rate is then no longer guaranteed for those that remain. By chance is then: at the same p-value from permuted
masks.

Real outcomes. Where learners have a score of their own there is no natural threshold: mem(i) and infl(i, j) are in the
score's unit. Pairs are then selected at a false discovery rate (0.1 unless another is given), by Welch's test, among
the training examples whose memorization is above 0 at that rate; `mem` and `infl` are thresholds in the score's unit.

Variance. Each pair has its own error and interval, which do not know that the pair was selected: values near the
threshold are biased upwards (`findings/cross_fit.py` gives values that are not). `findings/stability.py` says how the
number of pairs varies from run to run.

Failure cases. Estimates that the trials cannot give (NaN) are never selected nor tested. Very low thresholds select a
large part of the matrix, and everything selected is held in memory. Whether an example is memorized is judged from the
same trials as its influence, so near the memorization threshold the two are not quite independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import (
    Influence,
    Memory,
    RealInfluence,
    Scan,
    arms,
    harmonic,
    memorization_of,
    q_values,
    real_influence,
    real_memorization,
)
from memfluence.findings._selection import (
    check_error_control,
    margins_of_ties,
    p_value_bound,
    significant,
    tested_blocks,
)
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

NOT_SMALL = 0.1  # share of the pairs found, above which those expected by chance are worth a warning
DEFAULT_MEM, DEFAULT_INFL = 0.25, 0.15  # the paper's
DEFAULT_FDR = 0.1  # of real outcomes


class Summary(TypedDict):
    """The paper's four counts of pairs."""

    pairs: int
    train_examples: int
    test_examples: int
    single_test_examples: int  # that occur in exactly one pair


@dataclass(frozen=True, eq=False)
class Pairs:
    """Selected pairs, largest influence first; ties to the larger influence on the margin, then to lower indices."""

    train_index: np.ndarray  # (pairs,) int64
    test_index: np.ndarray  # (pairs,) int64
    label: np.ndarray  # (pairs,) label of the training example
    influence: np.ndarray  # (pairs,)
    stderr: np.ndarray  # (pairs,) of the influence
    lower: np.ndarray  # (pairs,) 95% interval of the influence
    upper: np.ndarray  # (pairs,)
    memorization: np.ndarray  # (pairs,) of the training example
    permuted_counts: np.ndarray  # (permutations,) int64, pairs selected from permuted masks
    warning: str | None  # what the reader of these pairs should know first
    tested: int  # pairs of a memorized training example and a test example (of its class)
    p_value: np.ndarray | None = None  # (pairs,) one-sided, of influence <= null; None without error control
    q_value: np.ndarray | None = None  # (pairs,) lowest false discovery rate at which the pair is selected
    selected: int | None = None  # pairs at the false discovery rate, before `infl` dropped some
    fdr: float | None = None  # that rate; None without error control

    def __len__(self) -> int:
        return len(self.train_index)

    @property
    def expected_by_chance(self) -> float:
        """The number of pairs that the same thresholds select when no training example matters; NaN if not computed."""
        return float(self.permuted_counts.mean()) if len(self.permuted_counts) else float("nan")

    @property
    def by_chance_spread(self) -> float:
        """Standard deviation of that count from one permutation to another; NaN below two permutations."""
        return float(self.permuted_counts.std(ddof=1)) if len(self.permuted_counts) > 1 else float("nan")

    @cached_property
    def summary(self) -> Summary:
        return summary_of(self.train_index, self.test_index)

    def columns(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Plain columns (`p_value` and `q_value` with error control), of training examples with these labels."""
        names = ("train_index", "test_index", "label", "influence", "stderr", "lower", "upper", "memorization")
        tested = () if self.p_value is None else ("p_value", "q_value")
        return {name: getattr(self, name) for name in (*names, *tested)} | {"label": labels[self.train_index]}


def summary_of(train_index: np.ndarray, test_index: np.ndarray) -> Summary:
    _, pairs_of_test = np.unique(test_index, return_counts=True)
    return {
        "pairs": len(train_index),
        "train_examples": len(np.unique(train_index)),
        "test_examples": len(pairs_of_test),
        "single_test_examples": int((pairs_of_test == 1).sum()),
    }


def high_influence_pairs(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,  # (n_train,)
    test_labels: np.ndarray,  # (n_test,)
    *,
    mem: float | None = None,
    infl: float | None = None,
    fdr: float | None = None,
    null: float = 0.0,
    any_dependence: bool = False,
    same_class: bool = True,
    keep: float | None = None,
    permutations: int = 5,
    seed: int = 0,
    memory: str | int | Memory | None = None,
    device: str = "cpu",
    scan: Scan | None = None,
    outcome: tuple[np.ndarray, np.ndarray] | None = None,
    margins: np.ndarray | None = None,  # (trials, n_test)
) -> Pairs:
    """All pairs at or above both thresholds, with how many of them chance alone would give.

    `mem` is 0.25; `infl` is 0.15 unless `fdr` is given. With `fdr`, pairs are selected at that false discovery rate
    against infl <= `null`, by Benjamini and Hochberg's procedure or, with `any_dependence`, Benjamini and Yekutieli's.
    `permutations=0` leaves out what is expected by chance. The matrix is never held: memory grows with the number of
    pairs found, up to the cap of `memory`. `device="cuda"` looks for pairs above thresholds on a GPU, `scan` does so
    elsewhere (`scan_on_ray`). Test examples that are right, or wrong, too rarely to reach the threshold are not looked
    at. `outcome` are real outcomes, (trials, n_train) and (trials, n_test), in place of right and wrong: pairs are then
    selected at a rate of 0.1 unless `fdr` or `infl` is given, and without `mem` among the examples that are memorized
    at that rate. `margins` order pairs of equal influence, and change
    nothing else.
    """
    train_labels, test_labels = np.asarray(train_labels), np.asarray(test_labels)
    if outcome is None:
        mem = DEFAULT_MEM if mem is None else mem
        infl = infl if infl is not None else DEFAULT_INFL if fdr is None else -1.0
    elif infl is None:
        infl, fdr = -np.inf, DEFAULT_FDR if fdr is None else fdr
    _check(trials, train_labels, test_labels, mem, infl, permutations, outcome is not None)
    chosen = arms(trials, kinds, keep)
    scores = memorization_of(chosen) if outcome is None else real_memorization(trials, kinds, outcome[0], keep)
    memorized = scores.value  # (n_train,)
    candidates = np.flatnonzero(
        q_values(scores.p_value, len(memorized)) <= (fdr or DEFAULT_FDR)
        if mem is None and scores.p_value is not None
        else memorized >= (mem or 0.0)
    )
    blocks = list(tested_blocks(candidates, train_labels, test_labels, same_class))
    tested = sum(len(rows) * len(columns) for rows, columns in blocks)
    estimates: Influence | RealInfluence
    if outcome is None:
        estimates = Influence(chosen, memory=memory, device=device, scan=scan)
    else:
        if device != "cpu" or scan is not None:
            raise InputError("Pairs of real outcomes are looked for on this machine's CPU; leave out the device.")
        estimates = real_influence(trials, kinds, outcome[1], keep, memory=memory)
    p_value = q_value = None
    if fdr is None:
        train, test = estimates.at_least(infl, blocks)
    else:
        check_error_control(fdr, null, device, outcome is not None)
        if scan is not None:
            raise InputError("A cluster looks for pairs above thresholds; leave out the false discovery rate (`fdr`).")
        bound = fdr
        if estimates.memory.limit is not None:  # look twice, to hold what is selected and not all up to the rate
            rate = fdr / harmonic(tested) if any_dependence and tested else fdr
            bound = p_value_bound(estimates, blocks, null, rate, tested)
        train, test, p_value = significant(estimates, blocks, null, bound)
        q_value = q_values(p_value, tested, any_dependence=any_dependence)
        below = np.flatnonzero(q_value <= fdr)
        train, test, p_value, q_value = train[below], test[below], p_value[below], q_value[below]
        level = float(p_value.max()) if len(below) else 0.0
    found = estimates.at(train, test)
    ties = margins_of_ties(found.value, train, test, trials, kinds, margins, keep)
    order = np.lexsort((test, train, -ties, -found.value))
    order = order[found.value[order] >= infl]
    real = estimates if isinstance(estimates, RealInfluence) else None
    del estimates  # and the words that it counts: permuted ones take their place
    Memory.of(memory).check(bool(permutations) * chosen.in_trials.mask.nbytes, "permuted masks", "`permutations=0`")
    permuted_counts = []
    for number in range(permutations):
        rng = generator(seed, "permutation", number)
        permuted: Influence | RealInfluence
        if real is not None:
            permuted = real.permuted(rng)
        else:
            permuted = Influence(chosen.permuted(rng), memory=memory, device=device, scan=scan)
        if fdr is None:
            permuted_counts.append(len(permuted.at_least(infl, blocks)[0]))
        else:
            by_chance = significant(permuted, blocks, null, level)
            permuted_counts.append(int((permuted.at(*by_chance[:2]).value >= infl).sum()))
    return Pairs(
        train_index=train[order],
        test_index=test[order],
        label=train_labels[train[order]],
        influence=found.value[order],
        stderr=found.stderr[order],
        lower=found.lower[order],
        upper=found.upper[order],
        memorization=memorized[train[order]],
        permuted_counts=np.array(permuted_counts, dtype=np.int64),
        warning=_warning(len(order), permuted_counts, mem, infl) if fdr is None else _no_discovery(len(train), fdr),
        tested=tested,
        p_value=None if p_value is None else p_value[order],
        q_value=None if q_value is None else q_value[order],
        selected=None if q_value is None else len(q_value),
        fdr=fdr,
    )


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


def _check(
    trials: Trials,
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    mem: float | None,
    infl: float,
    permutations: int,
    has_scores: bool,
) -> None:
    for split, labels, n in (("training", train_labels, trials.n_train), ("test", test_labels, trials.n_test)):
        if labels.shape != (n,):
            raise InputError(
                f"There are {n} {split} examples but their labels have the shape {labels.shape}; give one for each."
            )
    for name, threshold in (("mem", mem), ("infl", infl)):
        if not has_scores and threshold is not None and not -1 <= threshold <= 1:
            raise InputError(f"The `{name}` threshold must be between -1 and 1. Got {threshold!r} instead.")
    if permutations < 0:
        raise InputError(f"The number of permutations must be 0 or more. Got {permutations} instead.")


def _warning(found: int, permuted_counts: list[int], mem: float | None, infl: float) -> str | None:
    if not found:
        least = "above chance" if mem is None else f"{mem:g}"
        return (
            f"No pair reaches memorization {least} and influence {infl:g}; run more trials or lower the thresholds"
            " (`mem`, `infl`)."
        )
    by_chance = sum(permuted_counts) / max(1, len(permuted_counts))
    if by_chance <= NOT_SMALL * found:
        return None
    about = f"{by_chance:,.{1 if by_chance < 10 else 0}f}"
    return (
        f"About {about} pairs would be selected by chance alone (permuted masks, same thresholds), against"
        f" {found:,} found, so {'most' if by_chance > found / 2 else 'many'} of them may be noise; run more trials"
        " or raise the influence threshold."
    )


def _no_discovery(found: int, fdr: float) -> str | None:
    if found:
        return None
    return (
        f"No pair can be told from chance at a false discovery rate of {fdr:g}; 'memfluence plan --run RUN' says how"
        " many more trials it takes."
    )
