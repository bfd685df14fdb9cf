"""`longtail`: a mixture of subpopulations with Zipf frequencies, where the true subpopulations are known.

The theory that memfluence's estimates test (Feldman, "Does learning require memorization? A short tale about a long
tail", 2019) says why memorizing helps: data are a mixture of subpopulations whose frequencies have a long tail, and
nothing about a subpopulation's label can be told from the others. Then an example that is the only one of its
subpopulation has to be memorized, and doing so is what gets the test examples of that subpopulation right.

Here subpopulation k (from 1) has a frequency proportional to k ** -exponent, a class of its own, and a centre drawn
from a standard normal distribution independently of the class; an example is its centre plus noise of standard
deviation `spread` in each of `dimension` directions. Ranks are dealt to classes in rounds, so that each class has
frequent and rare subpopulations. A share `flip` of the training labels, exactly round(flip * n_train), is replaced by
another class: those examples must be memorized too, and help nobody.

The same seed gives the same world: more examples extend the earlier ones, and a larger `flip` flips the same labels
and more. All values come from raw random bits by exact arithmetic, so that every machine makes the same data.
"""

import numpy as np

from memfluence.datasets.dataset import Dataset, from_arrays
from memfluence.datasets.folder import check_between
from memfluence.seeding import generator, random_subset

# Indices of the "data" stream: one for each thing that is drawn.
_WORLD, _TRAIN, _TEST, _FLIPS = range(4)


def load_longtail(
    name: str,
    *,
    n_train: int = 1000,
    n_test: int = 1000,
    n_classes: int = 10,
    subpopulations: int = 500,  # with 1000 examples and exponent 1, about 130 of them are seen exactly once
    exponent: float = 1.0,
    dimension: int = 32,
    spread: float = 0.3,  # neighbours of one subpopulation are three times closer than two subpopulations
    flip: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """The data as float32 (n, dimension).

    `attributes` holds train_subpopulation and test_subpopulation (0 is the most frequent), train_flipped (bool), and
    for each subpopulation its class and frequency: subpopulation_class, subpopulation_frequency.
    """
    check_between(name, "n_train", n_train, 2, 10**7)
    check_between(name, "n_test", n_test, 1, 10**7)
    check_between(name, "n_classes", n_classes, 2, 10**5)
    check_between(name, "subpopulations", subpopulations, n_classes, 10**7)
    check_between(name, "exponent", exponent, 0, 20)
    check_between(name, "dimension", dimension, 1, 10**5)
    check_between(name, "spread", spread, 0, 10**6)
    check_between(name, "flip", flip, 0, 1)
    check_between(name, "seed", seed, 0, 2**63)

    frequency = np.arange(1, subpopulations + 1, dtype=np.float64) ** -exponent  # (subpopulations,)
    frequency /= frequency.sum()
    world = generator(seed, "data", _WORLD).bit_generator
    rounds = -(-subpopulations // n_classes)
    deal = np.argsort(world.random_raw((rounds, n_classes)), axis=1, kind="stable")  # (rounds, n_classes)
    class_of = deal.ravel()[:subpopulations]  # (subpopulations,)
    centres = _normal(world.random_raw((subpopulations, 3 * dimension)))  # (subpopulations, dimension)

    features, members = {}, {}
    for split, stream, n in (("train", _TRAIN, n_train), ("test", _TEST, n_test)):
        # one row of bits per example, so that more examples extend the earlier ones
        raw = generator(seed, "data", stream).bit_generator.random_raw((n, 1 + 3 * dimension))
        uniform = (raw[:, 0] >> 11) * 2.0**-53  # (n,) in [0, 1)
        member = np.searchsorted(np.cumsum(frequency), uniform, side="right").clip(max=subpopulations - 1)
        features[split] = (centres[member] + spread * _normal(raw[:, 1:])).astype(np.float32)  # (n, dimension)
        members[split] = member  # (n,)

    flips = generator(seed, "data", _FLIPS)
    shift = 1 + flips.bit_generator.random_raw(n_train) % (n_classes - 1)  # (n_train,) in 1..n_classes-1
    flipped = random_subset(flips, n_train, round(flip * n_train))  # (n_train,) bool
    y_train = class_of[members["train"]]
    y_train = np.where(flipped, (y_train + shift.astype(np.int64)) % n_classes, y_train)
    return from_arrays(
        features["train"],
        y_train,
        features["test"],
        class_of[members["test"]],
        name=name,
        class_names=[str(label) for label in range(n_classes)],
        attributes={
            "train_subpopulation": members["train"],
            "test_subpopulation": members["test"],
            "train_flipped": flipped,
            "subpopulation_class": class_of,
            "subpopulation_frequency": frequency,
        },
    )


def _normal(raw: np.ndarray) -> np.ndarray:
    """Normal variates from raw bits (n, 3 * k) -> (n, k), mean 0 and variance 1.

    Each is the sum of twelve 16-bit numbers: normal to the eye and the same to the last bit on every machine, which
    logarithms and cosines are not.
    """
    n, columns = raw.shape
    pieces = np.ascontiguousarray(raw, dtype="<u8").view("<u2").reshape(n, columns // 3, 12)
    sums: np.ndarray = pieces.sum(axis=2, dtype=np.int64)  # (n, k), mean 6 * 65535
    return (sums - 6 * 65535) / 65536.0
