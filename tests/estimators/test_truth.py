"""Do the intervals hold the truth? A world small enough to compute it from the definition.

60 training examples of `longtail`, and a learner whose models are cheap enough to train a million of: the nearest
kept neighbour in a random projection to three dimensions. The projection is the learner's randomness; it spreads the
probabilities of being right over (0, 1), so that coverage is not carried by pairs about which there is no doubt.

The truth comes from the definition by brute force, and not by way of the estimators: for each training example i, draw
subsets I of size m - 1 without i, and train on I with i, on I, and (for the fixed design, whose held-out models have m
other examples) on I with another example in i's stead. The three share their projection, which does not change their
means and makes the error of their differences small.
"""

import numpy as np
import pytest

from memfluence import designs
from memfluence.datasets import load
from memfluence.estimators import influence
from memfluence.records import Trials

N_TRAIN, N_TEST, DIMENSION, PROJECTED = 60, 30, 8, 3
KEEP, SUBSET_SIZE, TRIALS = 0.7, 42, 2000
DRAWS = 4000  # of (I, projection) for each training example


@pytest.fixture(scope="module")
def world():
    return load(
        "longtail",
        n_train=N_TRAIN,
        n_test=N_TEST,
        n_classes=3,
        subpopulations=20,
        dimension=DIMENSION,
        spread=0.5,
        flip=0.1,
    )


def learn(world, masks, projections):
    """Which test examples models get right, (models, n_test) bool: masks (models, n_train), one projection each."""
    train = np.einsum("nd,mdk->mnk", world.x_train, projections)  # (models, n_train, PROJECTED)
    test = np.einsum("nd,mdk->mnk", world.x_test, projections)  # (models, n_test, PROJECTED)
    squared = (train * train).sum(axis=2)  # (models, n_train)
    # The squared distance less the test example's own square, which does not change who is nearest.
    distance = squared[:, None, :] - 2 * (test @ train.transpose(0, 2, 1))  # (models, n_test, n_train)
    distance += np.where(masks, np.float32(0), np.float32(np.inf))[:, None, :]
    return world.y_train[distance.argmin(axis=2)] == world.y_test


def random_projections(rng, models):
    return rng.standard_normal((models, DIMENSION, PROJECTED), dtype=np.float32)


@pytest.fixture(scope="module")
def truth(world):
    """The targets of the two designs with the standard errors of their computation, each (n_train, n_test)."""
    rng = np.random.default_rng(1)
    target = {name: np.empty((N_TRAIN, N_TEST)) for name in ("lemma", "fixed")}
    error = {name: np.empty((N_TRAIN, N_TEST)) for name in ("lemma", "fixed")}
    for i in range(N_TRAIN):
        draws = rng.random((DRAWS, N_TRAIN))
        draws[:, i] = 2  # i comes last in the random order of each row
        place = draws.argsort(axis=1).argsort(axis=1)  # (DRAWS, n_train)
        without = place < SUBSET_SIZE - 1  # I: m - 1 examples, never i
        with_example = without | (np.arange(N_TRAIN) == i)
        with_another = place < SUBSET_SIZE
        projections = random_projections(rng, DRAWS)
        right = learn(world, with_example, projections).astype(float)
        for name, held_out in (("lemma", without), ("fixed", with_another)):
            change = right - learn(world, held_out, projections)  # (DRAWS, n_test)
            target[name][i] = change.mean(axis=0)
            error[name][i] = change.std(axis=0) / np.sqrt(DRAWS)
    return target, error


def run_trials(world, name, seed):
    design = designs.make(name, n_train=N_TRAIN, keep=KEEP, seed=seed)
    trials = [design.trial(number) for number in range(TRIALS)]
    masks = np.array([trial.mask for trial in trials])  # (TRIALS, n_train)
    projections = np.concatenate([random_projections(trial.generator("init"), 1) for trial in trials])
    correct = learn(world, masks, projections)  # (TRIALS, n_test)
    mask_bits, test_bits = (np.packbits(bits, axis=1, bitorder="little") for bits in (masks, correct))
    kinds = np.array([trial.kind for trial in trials], np.int16)
    made = Trials(np.arange(TRIALS), kinds, mask_bits, np.zeros_like(mask_bits), test_bits, N_TRAIN, N_TEST)
    return influence(made, design.kinds).block_with_errors(), correct.mean(axis=0)


@pytest.mark.parametrize("name", ["lemma", "fixed"])
def test_intervals_hold_the_truth(world, truth, name):
    target, error = (both[name] for both in truth)
    found, accuracy = run_trials(world, name, seed=0)

    # The world is a fair one: probabilities are spread, some influences are large, and the truth is known well.
    assert np.mean((accuracy > 0.05) & (accuracy < 0.95)) > 0.9
    assert target.max() > 0.15
    assert error.mean() < found.stderr.mean() / 10

    covered = (found.lower <= target) & (target <= found.upper)  # (n_train, n_test)
    assert 0.93 < covered.mean() < 0.98
    # The standard errors are those of the estimates: standardised errors have a variance of about 1.
    assert 0.9 < np.mean(((found.value - target) / found.stderr) ** 2) < 1.1


def test_the_fixed_designs_target_is_another(truth):
    """A held-out model of the fixed design has one more example, which on average helps: its target is lower."""
    target, error = truth
    difference = target["lemma"] - target["fixed"]  # (n_train, n_test)
    uncertainty = np.sqrt((error["lemma"] ** 2 + error["fixed"] ** 2).mean() / difference.size)
    assert difference.mean() > 5 * uncertainty
    assert difference.mean() < 0.01  # and small
    assert abs(target["fixed"].mean()) < 5 * uncertainty  # it sums to 0 over all training examples
