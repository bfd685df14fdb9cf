"""One root seed, many independent streams.

Every random choice of a run comes from `generator(root, stream, index)`: a function of the root seed, the
name of the stream and one number (a trial, or a block of trials) alone. So a trial can be run again anywhere,
in any order, and its subset stays the same when its initialisation is drawn differently.
"""

from typing import Literal

import numpy as np

Stream = Literal["subset", "init", "order", "augment", "learner", "data", "permutation", "resample"]

# The numbers are part of the format: changing one changes every run ever made.
STREAMS: dict[str, int] = {
    "subset": 0,
    "init": 1,
    "order": 2,
    "augment": 3,
    "learner": 4,
    "data": 5,
    "permutation": 6,
    "resample": 7,
}


def _sequence(root: int, stream: Stream, index: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(entropy=root, spawn_key=(STREAMS[stream], index))


def generator(root: int, stream: Stream, index: int) -> np.random.Generator:
    """The generator of one stream of one trial (or block)."""
    return np.random.Generator(np.random.PCG64(_sequence(root, stream, index)))


def integer_seed(root: int, stream: Stream, index: int) -> int:
    """A seed in [0, 2**31) for code that wants an integer (scikit-learn, a user's function)."""
    return int(_sequence(root, stream, index).generate_state(1, np.uint32)[0]) >> 1


def random_subset(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Uniform subset of `size` out of `n` as a mask (n,) bool.

    Made from raw 64-bit draws, the one output NumPy promises never to change, so that a plan gives the same
    masks under every version of NumPy: the subset is where the `size` smallest draws fall.
    """
    mask = np.zeros(n, dtype=bool)  # (n,)
    if size <= 0:
        return mask
    if size >= n:
        return ~mask
    draws = rng.bit_generator.random_raw(n)  # (n,) uint64
    largest_kept = np.partition(draws, size - 1)[size - 1]
    mask = draws <= largest_kept
    if int(mask.sum()) != size:  # two equal draws at the border, once in about 2**64 / n
        mask = np.zeros(n, dtype=bool)
        mask[np.argsort(draws, kind="stable")[:size]] = True
    return mask
