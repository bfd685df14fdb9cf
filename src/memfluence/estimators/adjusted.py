"""Memorization and influence adjusted for which other examples each model had: the same target, less variance.

Definition. As in `memorization.py` and `influence.py`; nothing about the target changes.

Estimator. Models differ in their training noise and in which other examples they had. The second part can be taken
off, because the design draws the masks: with z_k whether a trial kept k, and any coefficients b that do not come from
trial t itself, the outcome

    e_t = y_t - sum over k other than i of b_k (z_tk - E[z_k | z_ti])

has the mean of y_t whether i was kept or left out, and a smaller variance if b predicts y. The estimate is the
difference of the means of e (a control variate with a known mean, or regression adjustment as in Lin 2013, Annals of
Applied Statistics 7, 295-318, with the leave-one-out fit of Wu and Gagnon-Bartsch 2018). Under `fixed`, E[z_k | z_i] is
(m - 1)/(n - 1) with i and m/(n - 1) without. b is a ridge regression of the outcomes of all other trials on their
masks, those of the example's class or those of all examples, with one of some penalties, whichever predicts best; no
adjustment at all is one of the choices. For memorization each side has its own b, since models that kept an example
hardly depend on the others: there the outcome is y where the trial is of that side, its mean elsewhere, scaled so that
the regression is that of the side's own trials.

Bias. None in influence for a penalty given beforehand and independent trials: e_t has the right mean given all of z_i
(`tests/estimators/test_adjusted.py` enumerates it). What is left comes from the choice by prediction error, from trials
of a balanced block, which know of each other, and for memorization from a mean that knows trial t (`docs/variance.md`).

Variance. That of e within each arm, over the arm's trials. (Not Algorithm 1's times the share of y's variance that the
fit leaves: what i itself does is in no arm's variance and may not be taken off again.) Algorithm 1's error, allowing
for arms that are all right or all wrong, is scaled by the ratio of these variances, and is never below that of e.

Failure cases. No gain where masks do not predict outcomes: with few trials for the size of a class, or networks whose
errors are mostly training noise. Needs the design's own distribution: fixed, balanced or bernoulli, one model per mask.

Paper: none of this; Algorithm 1 (Sec. 2) is the case b = 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators._arms import Arms, arms
from memfluence.estimators._estimates import Estimates, UseErrors, UseTile
from memfluence.estimators.counts import Order, bits_at, tiles
from memfluence.estimators.influence import Influence
from memfluence.estimators.intervals import Z95, Difference
from memfluence.estimators.memorization import Memorization, memorization_of
from memfluence.estimators.memory import Memory
from memfluence.estimators.real import RealInfluence, real_influence, real_memorization
from memfluence.records import Kind, Trials

ALL_EXAMPLES = 5000  # up to so many, the masks of all of them are tried beside those of the class
TRAIN_AT_ONCE, TEST_AT_ONCE = 2048, 512
# The share of an outcome's variance that masks are taken to explain, each for one penalty; 0 is no adjustment.
SHARES = (0.0, 0.05, 0.15, 0.3, 0.5, 0.7)
_EXAMPLES_AT_ONCE = 2048  # columns of the masks; 64 MB in float64 with 4000 trials
_INTERCEPT = 100.0  # its prior variance, over that of all masks together: as good as no penalty


@dataclass(frozen=True)
class Moments:
    """Moments of the masks: how often an example is kept, and given that another was kept or left out."""

    keep: float
    if_kept: float  # E[x_k | i kept], with x = z - keep
    if_left_out: float  # E[x_k | i left out]


def moments(arms: Arms, subset_size: int | None) -> Moments:
    """The moments of the designs `fixed`, `balanced` (each trial alone is a uniform subset) and `bernoulli`."""
    n = arms.n_train
    if not arms.shared or arms.keep is None or arms.in_trials.repeats > 1:
        raise InputError(
            "The adjusted estimator needs trials of the design fixed, balanced or bernoulli;"
            " leave out the estimator for these."
        )
    if subset_size is None or n == 1:
        return Moments(arms.keep, 0.0, 0.0)
    keep = subset_size / n
    return Moments(keep, (subset_size - 1) / (n - 1) - keep, subset_size / (n - 1) - keep)


class Masks:
    """Ridge regression from the masks of some training examples (the features) to outcomes, leaving out each trial.

    With x = z - keep, features F and a column for the intercept, H = X X' + penalty I:

        coefficients b = X' inv(H) y;   error of trial t predicted from all others r_t = (inv(H) y)_t / inv(H)_tt;
        any a = w' b is then a - (w' X' inv(H))_t r_t without trial t

    so that leaving out each trial in turn costs no more than one fit. X is decomposed once for all penalties.
    """

    def __init__(self, mask: np.ndarray, features: np.ndarray, keep: float) -> None:
        self._mask, self._features, self._keep = mask, features, keep
        trials, width = len(mask), len(features)
        self._size = max(1.0, width * keep * (1 - keep))  # of x'x for one trial
        self.total = np.zeros(trials)  # (trials,) sum of x over the features
        product = np.zeros((width, width) if width < trials else (trials, trials))
        parts = []
        for start in range(0, width, _EXAMPLES_AT_ONCE):
            x = self.centred(features[start : start + _EXAMPLES_AT_ONCE])  # (trials, some features)
            self.total += x.sum(axis=1)
            if width < trials:
                parts.append(x)
            else:
                product += x @ x.T
        one = np.full((trials, 1), np.sqrt(_INTERCEPT * self._size))
        if width < trials:
            x = np.concatenate([one, *parts], axis=1)  # (trials, width + 1)
            values, vectors = np.linalg.eigh(x.T @ x)
            used = values > values.max() * 1e-12
            self._values = values[used]  # (rank,)
            self._left = x @ (vectors[:, used] / np.sqrt(self._values))  # (trials, rank), orthonormal columns
        else:
            values, vectors = np.linalg.eigh(product + one @ one.T)
            used = values > values.max() * 1e-12
            self._values, self._left = values[used], vectors[:, used]

    def centred(self, examples: np.ndarray) -> np.ndarray:
        """x (trials, examples) float64."""
        return bits_at(self._mask, examples).astype(float) - self._keep

    def has(self, examples: np.ndarray) -> np.ndarray:
        """True for the examples that are features, (examples,) bool."""
        return np.isin(examples, self._features)

    @cached_property
    def _squares(self) -> np.ndarray:
        return np.asarray(self._left**2)

    def _penalty(self, share: float) -> float:
        return self._size * (1 / share - 1)

    def residuals(self, outcome: np.ndarray, share: float) -> np.ndarray:
        """Errors (trials, n) of each trial as predicted from all others; outcome (trials, n)."""
        kept = self._values / (self._values + self._penalty(share))  # (rank,)
        error = outcome - self._left @ (kept[:, None] * (self._left.T @ outcome))
        error /= 1 - (self._squares @ kept)[:, None]
        return np.asarray(error)

    def dual(self, weights: np.ndarray, share: float) -> np.ndarray:
        """inv(H) times weights (trials, n): how functions X w of the masks weigh each trial's outcome in X w' b."""
        penalty = self._penalty(share)
        kept = self._values / (self._values + penalty)
        solved = (weights - self._left @ (kept[:, None] * (self._left.T @ weights))) / penalty
        return np.asarray(solved)

    def intercept(self, share: float) -> np.ndarray:
        """The weights (trials,) of outcomes in the intercept."""
        return self.dual(np.full((len(self.total), 1), _INTERCEPT * self._size), share)[:, 0]


def difference_variance(kept: np.ndarray, values: np.ndarray) -> np.ndarray:
    """s^2 / trials of each arm, added up, (examples, n); kept (trials, examples) of 0 and 1, values (trials, n)."""
    variance = np.zeros((kept.shape[1], values.shape[1]))
    for used in (kept, 1 - kept):
        count = used.sum(axis=0)[:, None]  # (examples, 1)
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN with one trial or none
            variance += (used.T @ values**2 / count - (used.T @ values / count) ** 2) / (count - 1)
    return np.maximum(variance, 0.0)


def adjusted_memorization(
    trials: Trials,
    kinds: Sequence[Kind],
    labels: np.ndarray,  # (n_train,)
    keep: float | None = None,
    *,
    outcome: np.ndarray | None = None,  # (trials, n_train); None: whether models are right
    shares: Sequence[float] = SHARES,
    memory: str | int | Memory | None = None,
) -> Memorization:
    """Memorization of every training example; accuracies (or means) in and out are adjusted as well."""
    chosen = arms(trials, kinds, keep)
    design = moments(chosen, _subset_size(kinds, chosen.keep))
    plain = memorization_of(chosen) if outcome is None else real_memorization(trials, kinds, outcome, keep)
    rows = np.searchsorted(trials.numbers, chosen.in_trials.numbers)
    mask, correct = chosen.in_trials.mask, chosen.in_trials.train_correct
    Memory.of(memory).check(*_needed(len(mask), np.bincount(labels).max(), chosen.n_train))
    every = _every_mask(mask, chosen.n_train, design.keep)
    mean, variance = np.full((2, 2, chosen.n_train), np.nan)  # of each side: kept, left out
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        fits = [Masks(mask, members, design.keep), *every]
        y = (bits_at(correct, members) if outcome is None else outcome[np.ix_(rows, members)]).astype(float)
        kept = bits_at(mask, members).astype(bool)  # (trials, members)
        sides = ((kept, design.keep, design.if_kept), (~kept, 1 - design.keep, design.if_left_out))
        for side, (used, chance, given) in enumerate(sides):
            found = _mean_of_side(fits, members, y, used, chance, given, shares, outcome is None)
            mean[side, members], variance[side, members] = found
    value, stderr = mean[0] - mean[1], np.sqrt(variance.sum(axis=0))
    interval = dict(zip(("lower", "upper"), _interval(value, stderr, outcome is None)))
    return replace(plain, value=value, stderr=stderr, **interval, mean_in=mean[0], mean_out=mean[1])


def _mean_of_side(
    fits: Sequence[Masks],
    members: np.ndarray,  # (members,) training examples
    y: np.ndarray,  # (trials, members)
    used: np.ndarray,  # (trials, members) bool: the trial is of this side
    chance: float,  # that a trial is of this side
    given: float,  # E[x_k | this side]
    shares: Sequence[float],
    binary: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The adjusted mean of a side's outcomes and its variance, (members,) each."""
    count = used.sum(axis=0)  # (members,)
    with np.errstate(invalid="ignore", divide="ignore"):  # an empty side is NaN
        centre = np.where(used, y, 0).sum(axis=0) / count
        spread = np.where(used, y - centre, 0)  # (trials, members)
        squares = (spread**2).sum(axis=0)  # (members,)
        once = (centre * count + 1) / (count + 2)  # as in Agresti and Caffo's error
        variance = once * (1 - once) / (count + 2) if binary else squares / (count - 1) / count
        least = squares * (count / (count - 1)) ** 2  # squared errors of the mean of the others
    mean, plain = centre.copy(), least.copy()
    for fit in fits:
        for share in (share for share in shares if share > 0):
            columns = np.flatnonzero((squares > 0) & (count > 2))
            scaled = spread[:, columns] / chance
            left = fit.residuals(scaled, share)  # (trials, columns)
            error = ((spread[:, columns] - scaled + left) ** 2 * used[:, columns]).sum(axis=0)
            better = error < least[columns]
            columns, scaled, left = columns[better], scaled[:, better], left[:, better]
            least[columns] = error[better]
            x = fit.centred(members[columns])  # (trials, columns)
            own = fit.dual(x, share)
            total = fit.dual(fit.total[:, None], share)  # (trials, 1)
            intercept = fit.intercept(share)[:, None]  # (trials, 1)

            def without_each(weights: np.ndarray, scaled: Any = scaled, left: Any = left) -> np.ndarray:
                return np.asarray((weights * scaled).sum(axis=0) - weights * left)  # (trials, columns)

            others = scaled - left - without_each(intercept) - without_each(own) * (x - given)
            others -= given * without_each(total)  # what the other examples' masks predict, less its known mean
            adjusted = np.where(used[:, columns], y[:, columns] - others, 0)
            mean[columns] = adjusted.sum(axis=0) / count[columns]
    with np.errstate(invalid="ignore"):
        return mean, variance * np.where(plain > 0, least / plain, 1.0)


def adjusted_influence(
    trials: Trials,
    kinds: Sequence[Kind],
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    keep: float | None = None,
    *,
    outcome: np.ndarray | None = None,  # (trials, n_test); None: whether models are right
    shares: Sequence[float] = SHARES,
    memory: str | int | Memory | None = None,
) -> "AdjustedInfluence":
    """Adjusted influence, computed as it is asked for; a test example's class says which masks are its class's."""
    plain: Influence | RealInfluence
    if outcome is None:
        plain = Influence(arms(trials, kinds, keep), memory=memory)
        values = None
    else:
        plain = real_influence(trials, kinds, outcome, keep, memory=memory)
        values = outcome[np.searchsorted(trials.numbers, plain.arms.in_trials.numbers)]
    return AdjustedInfluence(plain, _subset_size(kinds, plain.arms.keep), train_labels, test_labels, values, shares)


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The test examples of one class: how each is best predicted, and the errors of that."""

    fits: list[Masks]
    which: np.ndarray  # (tests,) position in fits
    share: np.ndarray  # (tests,) 0: not adjusted
    outcome: np.ndarray  # (trials, tests)
    left: np.ndarray  # (trials, tests) errors without the trial itself


class AdjustedInfluence(Estimates):
    """Adjusted influence for all pairs: the matrix, parts of it, with errors, the largest."""

    def __init__(
        self,
        plain: Influence | RealInfluence,
        subset_size: int | None,
        train_labels: np.ndarray,
        test_labels: np.ndarray,
        outcome: np.ndarray | None,  # (trials of the arms, n_test)
        shares: Sequence[float] = SHARES,
    ) -> None:
        self.plain, self.memory = plain, plain.memory
        self.n_train, self.n_test = plain.n_train, plain.n_test
        self._design = moments(plain.arms, subset_size)
        self._labels, self._outcome, self._shares = (train_labels, test_labels), outcome, shares
        self._trials = plain.arms.in_trials
        self._every: list[Masks] | None = None
        self._latest: tuple[int, np.ndarray, _Fitted] | None = None  # label, its test examples

    def _differences(self, train: np.ndarray, test: np.ndarray, use: UseErrors) -> None:
        def with_errors(values: np.ndarray, rows: slice, columns: slice) -> None:
            stderr = self.plain.block_with_errors(train[rows], test[columns]).stderr
            kept = bits_at(self._trials.mask, train[rows]).astype(float)  # (trials, some examples)
            for own, _, share, y, left in self._alike(test[columns]):
                if share > 0:  # e is its residual, but for a constant and parts of order 1 / trials
                    of_e, of_y = difference_variance(kept, left), difference_variance(kept, y - y.mean(axis=0))
                    with np.errstate(invalid="ignore", divide="ignore"):  # NaN where an arm has fewer than two trials
                        scaled = stderr[:, own] ** 2 * np.fmin(1, of_e / of_y)
                    stderr[:, own] = np.sqrt(np.fmax(of_e, scaled))
            limits = _interval(values, stderr.T, self._outcome is None)
            use(Difference(values, stderr.T, *limits), rows, columns)

        self._tiles(train, test, with_errors)

    def _tiles(
        self, train: np.ndarray, test: np.ndarray, use: UseTile, *, of: Order = "either", threads: int | None = None
    ) -> None:
        for rows, columns in tiles(train, test, TRAIN_AT_ONCE, TEST_AT_ONCE):
            values = np.empty((columns.stop - columns.start, rows.stop - rows.start))
            for own, fit, share, y, left in self._alike(test[columns]):
                values[own] = self._values(train[rows], fit, share, y, left).T
            use(values, rows, columns)

    def _alike(self, test: np.ndarray) -> Iterator[tuple[np.ndarray, Masks, float, np.ndarray, np.ndarray]]:
        """Positions in `test` of those with the same fit; that fit, its share, their outcomes and errors."""
        for label in np.unique(self._labels[1][test]):
            own = np.flatnonzero(self._labels[1][test] == label)
            members, fitted = self._fitted(int(label))
            place = np.searchsorted(members, test[own])
            for which, fit in enumerate(fitted.fits):
                for share in np.unique(fitted.share[place]).tolist():
                    some = np.flatnonzero((fitted.which[place] == which) & (fitted.share[place] == share))
                    if len(some):
                        yield own[some], fit, share, fitted.outcome[:, place[some]], fitted.left[:, place[some]]

    def _values(self, train: np.ndarray, fit: Masks, share: float, y: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Estimates (train, tests): the mean of e over the trials that kept i less that over those that did not."""
        design, arms = self._design, self.plain.arms
        kept = bits_at(self._trials.mask, train).astype(float)  # (trials, train)
        counts = arms.trials_in[train][:, None], arms.trials_out[train][:, None]  # (train, 1)
        with np.errstate(invalid="ignore", divide="ignore"):  # an empty arm is NaN
            if share == 0:
                y = y - y.mean(axis=0)
                return np.asarray(kept.T @ y / counts[0] - (1 - kept).T @ y / counts[1])
            own = fit.dual((kept - design.keep) * fit.has(train), share)  # (trials, train); 0 where it is no feature
            total, intercept = fit.dual(fit.total[:, None], share), fit.intercept(share)[:, None]  # (trials, 1)
            coefficient, sum_of_all = own.T @ y, total.T @ y  # (train, tests), (1, tests)
            value = np.zeros((len(train), y.shape[1]))
            sides = ((1, kept, design.if_kept, 1 - design.keep), (-1, 1 - kept, design.if_left_out, -design.keep))
            for (sign, used, given, x), count in zip(sides, counts):
                # e = r + (intercept + own x + given (sum of all - own)), each coefficient without the trial itself
                mean = used.T @ (left * (1 - intercept - given * total)) - (x - given) * ((used * own).T @ left)
                value += sign * (mean / count + given * sum_of_all + (x - given) * coefficient)
        return value

    def _fitted(self, label: int) -> tuple[np.ndarray, _Fitted]:
        if self._latest is None or self._latest[0] != label:
            if self._every is None:
                self.memory.check(*_needed(len(self._trials), np.bincount(self._labels[0]).max(), self.n_train))
                self._every = _every_mask(self._trials.mask, self.n_train, self._design.keep)
            members = np.flatnonzero(self._labels[1] == label)
            self.memory.check(*_needed(len(self._trials), np.bincount(self._labels[0]).max()))
            features = np.flatnonzero(self._labels[0] == label)
            fits = [Masks(self._trials.mask, features, self._design.keep), *self._every]
            chosen = bits_at(self._trials.test_correct, members) if self._outcome is None else self._outcome[:, members]
            self._latest = label, members, self._fit(fits, chosen.astype(float))
        return self._latest[1:]

    def _fit(self, fits: list[Masks], y: np.ndarray) -> _Fitted:
        left = (y - y.mean(axis=0)) * (len(y) / max(1, len(y) - 1))
        least, which, share = (left**2).sum(axis=0), np.zeros(y.shape[1], dtype=int), np.zeros(y.shape[1])
        for number, fit in enumerate(fits):
            for candidate in (candidate for candidate in self._shares if candidate > 0):
                found = fit.residuals(y, candidate)
                error = (found**2).sum(axis=0)
                better = error < least
                least[better], which[better], share[better] = error[better], number, candidate
                left[:, better] = found[:, better]
        return _Fitted(fits, which, share, y, left)


def _interval(value: np.ndarray, stderr: np.ndarray, binary: bool) -> tuple[np.ndarray, np.ndarray]:
    """Normal 95% limits, within [-1, 1] for right and wrong."""
    least, most = (-1.0, 1.0) if binary else (-np.inf, np.inf)
    return np.maximum(value - Z95 * stderr, least), np.minimum(value + Z95 * stderr, most)


def _subset_size(kinds: Sequence[Kind], keep: float | None) -> int | None:
    return next(kind.subset_size for kind in kinds if kind.keep == keep)


def _needed(trials: int, features: int, n_train: int = 0) -> tuple[float, str, str]:
    """For `Memory.check`: masks of a class, or of all where they serve, and their decomposition, in some copies."""
    copies = 14 * max(features, 500) + (4 * n_train if n_train <= ALL_EXAMPLES else 0)
    return 8 * trials * copies, "the regression on masks", "the plain estimator"


def _every_mask(mask: np.ndarray, n_train: int, keep: float) -> list[Masks]:
    """The masks of all examples, where they are not too many to learn from."""
    return [Masks(mask, np.arange(n_train), keep)] if n_train <= ALL_EXAMPLES else []
