import numpy as np
import pytest

from memfluence.seeding import STREAMS, generator, integer_seed, random_subset


def test_streams_are_a_function_of_root_stream_and_index() -> None:
    draws = {
        (root, stream, index): tuple(generator(root, stream, index).bit_generator.random_raw(4).tolist())
        for root in (0, 1)
        for stream in STREAMS
        for index in (0, 1, 2)
    }
    assert len(set(draws.values())) == len(draws)
    assert draws[0, "subset", 1] == tuple(generator(0, "subset", 1).bit_generator.random_raw(4).tolist())


def test_the_streams_never_change() -> None:
    # Pinned: a change here changes the masks of every run ever made.
    assert generator(0, "subset", 0).bit_generator.random_raw(3).tolist() == [
        10424841047235941500,
        17255695675875941810,
        8852122957518882975,
    ]
    assert integer_seed(0, "learner", 5) == 815974900
    assert np.flatnonzero(random_subset(generator(0, "subset", 3), 12, 5)).tolist() == [0, 3, 4, 5, 11]


def test_integer_seeds_fit_scikit_learn() -> None:
    seeds = [integer_seed(3, "learner", trial) for trial in range(1000)]
    assert min(seeds) >= 0
    assert max(seeds) < 2**31
    assert len(set(seeds)) == 1000


@pytest.mark.parametrize("size", [0, 1, 4, 9, 10])
def test_random_subset_has_exactly_its_size(size: int) -> None:
    assert random_subset(generator(0, "subset", 0), 10, size).sum() == size


def test_random_subset_is_uniform() -> None:
    """All 10 subsets of size 2 of 5, over 20,000 draws: chi-square with 9 degrees of freedom."""
    rng = generator(0, "subset", 0)
    counts: dict[bytes, int] = {}
    for _ in range(20_000):
        key = random_subset(rng, 5, 2).tobytes()
        counts[key] = counts.get(key, 0) + 1
    observed = np.array(list(counts.values()))
    assert len(observed) == 10
    assert ((observed - 2000) ** 2 / 2000).sum() < 27.9  # 0.1% point


def test_equal_draws_at_the_border_still_give_the_size() -> None:
    class Ties:
        class bit_generator:
            @staticmethod
            def random_raw(n: int) -> np.ndarray:
                return np.zeros(n, dtype=np.uint64)

    assert random_subset(Ties(), 6, 2).tolist() == [True, True, False, False, False, False]  # type: ignore[arg-type]
