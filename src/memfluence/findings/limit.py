"""The limit: how much of an outcome's variance the masks explain, and so what no estimator can beat.

Definition. Let y be whether a model is right on an example, z its mask and p(z) = P[y = 1 | z]. By the law of total
variance Var(y) = Var(p(z)) + E[p(z) (1 - p(z))]: which examples the model had, and the noise of its training. The share
explained is Var(p(z)) / Var(y), of sums over examples.

What it limits. The target, a difference of means of p(z) with an example and without it, is E[w(z) p(z)] with weights w
that the design gives. The law of the masks is known and p is not, so the efficient influence function is w(z) (y -
p(z)) (Newey 1990, Journal of Applied Econometrics 5, 99-135): no regular estimator that takes nothing about the learner
for granted has, with many trials, an error variance below E[w(z)^2 p(z) (1 - p(z))] / trials. Algorithm 1 has that of y
in place of p (1 - p). So the best adjustment for masks needs the share 1 - explained of Algorithm 1's trials, with one
model a mask. For memorization variances are those within each arm, weighted as the arms' sizes do. For influence they
are those of all models: what one training example explains itself is no part of a limit but too little to be seen.

Estimator. Two models of one mask have y y' = 1 with the mean of p(z)^2, two models of different masks with the square
of its mean, and both averages over pairs are unbiased. So with `repeats`

    E[p (1 - p)] = mean(y) - mean(y y' of one mask),    Var(y) = mean(y) - mean(y y' of two masks),

each without bias (with as many models for every mask it is the analysis of variance with one way). Sums over examples
are divided, and the error is the jackknife's over masks, since examples share them.

Failure cases. Without `repeats` nothing tells noise from masks: None. With fewer than three masks that have two models
each, None; an example that lacks them in an arm is left out of memorization. A different learner on the same masks
tells less: with p and p' of two learners the covariance of their outcomes over masks is that of p and p', so that over
the root of both variances it is at most the geometric mean of the two explained shares (`explained_by_both`): a lower
bound of what the masks explain, an upper one of nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memfluence.errors import InputError
from memfluence.estimators import Arms
from memfluence.records import Trials

VALUES_AT_ONCE = 2**20
FEWEST_MASKS = 3


@dataclass(frozen=True)
class Explained:
    """The share of variance that masks explain, with its standard error."""

    share: float
    stderr: float
    masks: int
    examples: int

    @property
    def least_trials(self) -> float:
        """The share of Algorithm 1's trials with which the best adjustment for masks has Algorithm 1's error."""
        return 1 - min(1.0, max(0.0, self.share))


def explained_of_test(arms: Arms) -> Explained | None:
    """Of the outcomes on test examples: the limit of influence. None where the design does not tell."""
    trials = _with_repeats(arms)
    if trials is None:
        return None
    sums = np.zeros((2, 1 + _masks(trials)))
    count = 0
    for _, right, models in _by_mask(trials, trials.test_correct, trials.n_test):
        within, total = _variances(right, models, np.ones(right.shape, bool))
        sums += [within.sum(axis=1), total.sum(axis=1)]
        count += right.shape[1]
    return _share(sums[0], sums[1], count)


def explained_of_memorization(arms: Arms) -> Explained | None:
    """Of the outcomes on training examples, within the models that kept them and within those that did not."""
    trials = _with_repeats(arms)
    if trials is None:
        return None
    first = np.flatnonzero(np.diff(trials.numbers // trials.repeats, prepend=-1))
    kept_share = arms.trials_in.sum() / (arms.trials_in + arms.trials_out).sum()
    sums = np.zeros((2, 1 + _masks(trials)))
    count = 0
    for some, right, models in _by_mask(trials, trials.train_correct, trials.n_train):
        kept = _bits(trials.mask[first], some)  # (masks, some)
        parts = [
            np.stack(_variances(right, models, chosen)) / share
            for chosen, share in ((kept, kept_share), (~kept, 1 - kept_share))
        ]
        both = parts[0] + parts[1]  # (2, 1 + masks, some)
        known = np.isfinite(both).all(axis=(0, 1))
        sums += both[:, :, known].sum(axis=2)
        count += int(known.sum())
    return _share(sums[0], sums[1], count)


def explained_by_both(one: Trials, other: Trials) -> Explained:
    """A lower bound of what masks explain of test outcomes, from two learners on the same masks, one model each.

    It is the covariance of their outcomes over masks, over the root of both variances: at most the geometric mean of
    the two explained shares, and equal to it where both learners react to masks alike.
    """
    numbers, rows, other_rows = np.intersect1d(one.numbers, other.numbers, return_indices=True)
    if len(numbers) < FEWEST_MASKS or not np.array_equal(one.mask[rows], other.mask[other_rows]):
        raise InputError(
            "The two runs do not share their masks; give runs of one seed and design, of three trials or more."
        )
    sums = np.zeros((3, 1 + len(numbers)))
    for some in _columns(one.n_test, len(numbers)):
        y, x = (_bits(trials.test_correct[at], some).astype(float) for trials, at in ((one, rows), (other, other_rows)))
        left = len(numbers) - (np.arange(1 + len(numbers)) > 0)[:, None]  # trials, of all and without each
        pairs = left * (left - 1)
        of_y, of_x, of_xy = (_all_and_without_each(values) for values in (y, x, x * y))
        sums[0] += ((of_xy * left - of_y * of_x) / pairs).sum(axis=1)
        sums[1] += ((of_y * left - of_y**2) / pairs).sum(axis=1)  # y is 0 or 1, and its own square
        sums[2] += ((of_x * left - of_x**2) / pairs).sum(axis=1)
    root = np.sqrt(sums[1] * sums[2])
    return _share(root - sums[0], root, one.n_test)


def _with_repeats(arms: Arms) -> Trials | None:
    """The trials, if enough masks have several models."""
    trials = arms.in_trials
    if not arms.shared or trials.repeats < 2 or not len(trials):
        return None
    models = np.unique(trials.numbers // trials.repeats, return_counts=True)[1]
    return trials if (models > 1).sum() >= FEWEST_MASKS else None


def _masks(trials: Trials) -> int:
    return len(np.unique(trials.numbers // trials.repeats))


def _columns(n: int, rows: int) -> Iterator[slice]:
    at_once = max(8, VALUES_AT_ONCE // rows // 8 * 8)
    return (slice(start, min(n, start + at_once)) for start in range(0, n, at_once))


def _by_mask(trials: Trials, bits: np.ndarray, n: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Some examples, how many models of each mask are right on them (masks, some), and the models (masks, 1)."""
    first = np.flatnonzero(np.diff(trials.numbers // trials.repeats, prepend=-1))  # trials are in ascending order
    models = np.diff(np.append(first, len(trials)))[:, None].astype(float)
    for some in _columns(n, len(trials)):
        yield some, np.add.reduceat(_bits(bits, some), first, axis=0, dtype=np.float64), models


def _bits(packed: np.ndarray, some: slice) -> np.ndarray:
    """Some columns of packed bits, (rows, some) bool; `some` begins at a byte."""
    part = packed[:, some.start // 8 : -(-some.stop // 8)]
    return np.unpackbits(part, axis=1, count=some.stop - some.start, bitorder="little").view(bool)


def _variances(right: np.ndarray, models: np.ndarray, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[p (1 - p)] and Var(y), (1 + masks, examples): from all masks that are counted, then without each of them."""
    right, models = right * counted, models * counted  # (masks, examples)
    all_right, all_models = _all_and_without_each(right), _all_and_without_each(models)
    squares, of_squares = _all_and_without_each(right**2), _all_and_without_each(models**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = all_right / all_models
        same = (squares - all_right) / (of_squares - all_models)
        other = (all_right**2 - squares) / (all_models**2 - of_squares)
    return mean - same, mean - other


def _all_and_without_each(values: np.ndarray) -> np.ndarray:
    """Sums over rows: of all of them, then without each; (1 + rows, columns)."""
    return np.asarray(values.sum(axis=0) - np.concatenate([np.zeros((1, values.shape[1])), values]))


def _share(within: np.ndarray, total: np.ndarray, examples: int) -> Explained:
    """From sums over examples, (1 + masks,): of all masks, then without each."""
    masks = len(within) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = 1 - within / total
    spread = shares[1:] - shares[1:].mean()
    return Explained(float(shares[0]), float(np.sqrt((masks - 1) / masks * (spread**2).sum())), masks, examples)
