"""The standard error of the mean influence of pairs: brute force, and worlds made anew."""

import numpy as np
import pytest

from memfluence.estimators import Influence, arms
from memfluence.exchange.finding_again import mean_influence_stderr
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

BOTH = (Kind(0.5, None),)
LEMMA = (Kind(0.5, None, "in"), Kind(0.5, None, "out"))
N_TRAIN, N_TEST = 12, 5
TRAIN, TEST = np.array([0, 3, 3, 7, 11, 0]), np.array([0, 1, 4, 2, 3, 4])


def world(seed: int, masks: int, repeats: int = 1, kinds: int = 1) -> tuple[Trials, np.ndarray, np.ndarray]:
    """Trials whose models are right more often where they kept an example, and the same as plain arrays.

    Models that share a mask share luck of their own, so that they are far from independent.
    """
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((masks, N_TRAIN)) < 0.5, repeats, axis=0)  # (trials, n_train)
    mask[:, 11] |= rng.random(len(mask)) < (0.9 if repeats == 1 else 0)  # some draws never leave this one out
    luck = np.repeat(rng.random((masks, N_TEST)), repeats, axis=0)
    right = 0.25 * luck + 0.5 * rng.random((len(mask), N_TEST)) + 0.25 * mask[:, [0, 3, 7, 11, 3]] > 0.5
    bits = [np.packbits(part, axis=1, bitorder="little") for part in (mask, mask, right)]
    numbers = np.arange(len(mask))
    trials = Trials(numbers, (numbers % kinds).astype(np.int16), *bits, N_TRAIN, N_TEST, repeats=repeats)
    return trials, mask, right


def plain(mask: np.ndarray, right: np.ndarray, in_rows: list[int], out_rows: list[int]) -> float:
    values = []
    for i, j in zip(TRAIN, TEST):
        kept = [right[t, j] for t in in_rows if mask[t, i]]
        left_out = [right[t, j] for t in out_rows if not mask[t, i]]
        if kept and left_out:
            values.append(np.mean(kept) - np.mean(left_out))
    return float(np.mean(values)) if values else float("nan")


def plain_draws(numbers: np.ndarray, repeats: int, arm: int, draws: int) -> list[list[int]]:
    """The trials of each draw, whole masks with all their models."""
    ids = list(dict.fromkeys((numbers // repeats).tolist()))
    picked = generator(0, "resample", arm).integers(0, len(ids), (draws, len(ids)))
    return [[t for one in draw for t in numbers.tolist() if t // repeats == ids[one]] for draw in picked]


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_bootstrap_equals_brute_force(repeats: int) -> None:
    trials, mask, right = world(1, 8, repeats)
    draws = plain_draws(trials.numbers, repeats, 0, 40)
    means = [plain(mask, right, rows, rows) for rows in draws]
    found = mean_influence_stderr(arms(trials, BOTH), TRAIN, TEST, draws=40)
    assert found == pytest.approx(np.std(means, ddof=1), rel=1e-6)


def test_arms_of_their_own_are_drawn_apart() -> None:
    trials, mask, right = world(2, 20, kinds=2)
    sides = [plain_draws(trials.numbers[arm::2], 1, arm, 40) for arm in (0, 1)]
    means = [plain(mask, right, *both) for both in zip(*sides)]
    found = mean_influence_stderr(arms(trials, LEMMA), TRAIN, TEST, draws=40)
    assert found == pytest.approx(np.nanstd(means, ddof=1), rel=1e-6)


@pytest.mark.parametrize("repeats", [1, 4])
def test_it_is_the_spread_between_worlds(repeats: int) -> None:
    pairs = TRAIN[[0, 1, 3]], TEST[[0, 1, 3]]
    means, errors = [], []
    for seed in range(150):
        chosen = arms(world(seed, 60, repeats)[0], BOTH)
        means.append(Influence(chosen).at(*pairs).value.mean())
        errors.append(mean_influence_stderr(chosen, *pairs))
    assert np.mean(errors) == pytest.approx(np.std(means, ddof=1), rel=0.15)


def test_one_mask_has_no_spread() -> None:
    for trials in (world(3, 1)[0], world(3, 1, repeats=4)[0]):
        assert np.isnan(mean_influence_stderr(arms(trials, BOTH), TRAIN, TEST))
