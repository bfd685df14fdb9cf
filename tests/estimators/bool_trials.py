"""Trials from plain boolean arrays."""

import numpy as np

from memfluence.records import Kind, Trials

BOTH = (Kind(0.5, None),)


def pack(bits):
    return np.packbits(np.asarray(bits, dtype=bool), axis=1, bitorder="little")


def make_trials(mask, test_correct, train_correct=None, *, kinds=None, numbers=None, repeats=1):
    mask, test_correct = np.asarray(mask, dtype=bool), np.asarray(test_correct, dtype=bool)
    trials = len(mask)
    train_correct = np.zeros_like(mask) if train_correct is None else np.asarray(train_correct, dtype=bool)
    return Trials(
        numbers=np.arange(trials) if numbers is None else np.asarray(numbers),
        kinds=np.zeros(trials, np.int16) if kinds is None else np.asarray(kinds, np.int16),
        mask=pack(mask),
        train_correct=pack(train_correct),
        test_correct=pack(test_correct),
        n_train=mask.shape[1],
        n_test=test_correct.shape[1],
        repeats=repeats,
    )


def random_trials(trials, n_train, n_test, *, seed=0, accuracy=0.7, **options):
    rng = np.random.default_rng(seed)
    mask = rng.random((trials, n_train)) < 0.6
    return make_trials(
        mask, rng.random((trials, n_test)) < accuracy, rng.random((trials, n_train)) < accuracy, **options
    )


def unpacked(trials):
    """(mask, train_correct, test_correct) as booleans."""

    def unpack(bits, n):
        return np.unpackbits(bits, axis=1, count=n, bitorder="little").astype(bool)

    return (
        unpack(trials.mask, trials.n_train),
        unpack(trials.train_correct, trials.n_train),
        unpack(trials.test_correct, trials.n_test),
    )
