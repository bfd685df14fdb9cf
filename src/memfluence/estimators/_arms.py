"""Arms: the trials that serve each side of the comparison.

Every estimate is a proportion among models that kept an example (the in-arm) minus one among models that did not
(the out-arm). Under most designs both come from the same trials. Under the lemma's the in-arm is the trials of size
m alone and the out-arm those of size m - 1 alone: a trial of size m that left the example out is used for neither
side, because its model saw m other examples, not the m - 1 that the definition asks for.

Trials of different keep fractions have different targets and are never pooled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memfluence.errors import InputError, shortened
from memfluence.estimators.counts import column_counts
from memfluence.records import Kind, Trials


@dataclass(frozen=True, eq=False)
class Arms:
    """The trials of each arm, and how often each training example was kept and left out in them.

    `in_trials` and `out_trials` are the same object where both arms use the same trials. The sample sizes are what
    errors are computed from: as many independent models would be at least as sure. They are the numbers of trials,
    unless several models share a mask (then those of distinct masks) or masks were dealt in blocks of b (then a share
    1 - 1/b of the trials); `intervals.clustered_difference` does better for single pairs.
    """

    in_trials: Trials
    out_trials: Trials
    keep: float | None
    trials_in: np.ndarray  # (n_train,) int64, trials of the in-arm that kept the example
    trials_out: np.ndarray  # (n_train,) int64, trials of the out-arm that left it out
    sample_in: np.ndarray  # (n_train,) models as good as independent ones among trials_in
    sample_out: np.ndarray  # (n_train,) the same among trials_out

    @property
    def shared(self) -> bool:
        """True if both arms use the same trials, so that one joint count serves both."""
        return self.in_trials is self.out_trials

    @property
    def parts(self) -> list[Trials]:
        """The trials of both arms, each once."""
        return [self.in_trials] if self.shared else [self.in_trials, self.out_trials]

    @property
    def counts(self) -> dict[str, np.ndarray]:
        """The numbers of trials of both arms, by name."""
        return {"trials_in": self.trials_in, "trials_out": self.trials_out}

    @property
    def n_train(self) -> int:
        return self.in_trials.n_train

    @property
    def n_test(self) -> int:
        return self.in_trials.n_test

    def permuted(self, rng: np.random.Generator) -> "Arms":
        """The same trials with their masks dealt out anew: no training example can matter, all else stays.

        Masks change places within their arm, so sizes stay what they were; models that share a mask go on sharing one.
        """
        in_trials = _permuted(self.in_trials, rng)
        return _counted(in_trials, in_trials if self.shared else _permuted(self.out_trials, rng), self.keep)


def arms(trials: Trials, kinds: Sequence[Kind], keep: float | None = None) -> Arms:
    """The arms of one keep fraction; `keep` may be left out where the plan has only one."""
    if len(trials) and not 0 <= int(trials.kinds.min()) <= int(trials.kinds.max()) < len(kinds):
        raise InputError(
            f"The trials are of kinds 0 to {int(trials.kinds.max())}, but the plan has {len(kinds)} kind(s);"
            " give the kinds of the plan that made these trials."
        )
    chosen = _chosen_keep(kinds, keep)
    of_keep = [number for number, kind in enumerate(kinds) if kind.keep == chosen]
    sides = [kinds[number].arm for number in of_keep]
    if sides == ["both"]:
        both = _of_kind(trials, of_keep[0])
        return _counted(both, both, chosen)
    if sorted(sides) == ["in", "out"]:
        in_kind, out_kind = of_keep if sides[0] == "in" else of_keep[::-1]
        return _counted(_of_kind(trials, in_kind), _of_kind(trials, out_kind), chosen)
    if sides == ["neither"]:
        raise InputError(
            "Trials of the uniform design cannot be compared by whether they kept an example, since those that did are"
            " larger; they give Shapley values ('memfluence values'), and for this make a run of another design."
        )
    raise InputError(
        f"The kinds of trial with keep {chosen} must be one that serves both arms, or one for each arm;"
        f" got {shortened(sides)}; select the trials of one design first."
    )


def _chosen_keep(kinds: Sequence[Kind], keep: float | None) -> float | None:
    choices = list(dict.fromkeys(kind.keep for kind in kinds))
    shown = ", ".join("none" if choice is None else f"{choice:g}" for choice in choices)
    if keep is None:
        if len(choices) == 1:
            return choices[0]
        if not choices:
            raise InputError("The plan has no kind of trial; give at least one.")
        raise InputError(f"This run has trials of several keep fractions ({shown}); choose one with `keep`.")
    for choice in choices:
        if choice is not None and math.isclose(choice, keep, rel_tol=1e-9):
            return choice
    if choices == [None]:
        raise InputError(
            f"This run's masks have no keep fraction, so keep {keep:g} cannot be chosen; leave out `keep`."
        )
    raise InputError(f"This run has no trials with keep {keep:g}; choose one of {shown} with `keep`.")


def _of_kind(trials: Trials, kind: int) -> Trials:
    rows = trials.kinds == kind  # (trials,)
    return trials if rows.all() else trials.select(rows)  # not a copy where one kind is all there is


def _counted(in_trials: Trials, out_trials: Trials, keep: float | None) -> Arms:
    trials_in = column_counts(in_trials.mask, in_trials.n_train)  # (n_train,)
    kept_out = trials_in if in_trials is out_trials else column_counts(out_trials.mask, out_trials.n_train)
    trials_out = len(out_trials) - kept_out  # (n_train,)
    sample_in, sample_out = trials_in, trials_out
    if in_trials.repeats > 1:
        first_in, first_out = (trials.mask[distinct_masks(trials)[0]] for trials in (in_trials, out_trials))
        sample_in = column_counts(first_in, in_trials.n_train)
        sample_out = len(first_out) - column_counts(first_out, out_trials.n_train)
    elif in_trials.block > 1 and len(in_trials):
        dealt_together = np.unique(in_trials.numbers // in_trials.block, return_counts=True)[1].max()
        sample_in, sample_out = (count * (1 - 1 / dealt_together) for count in (trials_in, trials_out))
    return Arms(in_trials, out_trials, keep, trials_in, trials_out, sample_in, sample_out)


def distinct_masks(trials: Trials) -> tuple[np.ndarray, np.ndarray]:
    """(row of the first trial of each mask, which mask each trial has)."""
    _, first, mask_of_trial = np.unique(trials.numbers // trials.repeats, return_index=True, return_inverse=True)
    return first, mask_of_trial


def _permuted(trials: Trials, rng: np.random.Generator) -> Trials:
    first, mask_of_trial = distinct_masks(trials)
    dealt = first[rng.permutation(len(first))]  # (distinct masks,) rows
    return replace(trials, mask=trials.mask[dealt[mask_of_trial]])
