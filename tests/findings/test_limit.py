"""The share of variance that masks explain, against worlds that know it, enumeration and the analysis of variance."""

from itertools import product

import numpy as np
import pytest

from memfluence.errors import InputError
from memfluence.estimators import Arms, arms
from memfluence.findings.limit import explained_by_both, explained_of_memorization, explained_of_test
from memfluence.records import Kind, Trials
from simulated import packed

KINDS = (Kind(0.5, None),)


def trials_of(mask: np.ndarray, train: np.ndarray, test: np.ndarray, repeats: int) -> Trials:
    bits = packed(mask), packed(train), packed(test)
    return Trials(np.arange(len(mask)), np.zeros(len(mask), np.int16), *bits, mask.shape[1], test.shape[1], repeats)


def chances(mask: np.ndarray, n: int, strength: float) -> np.ndarray:
    """P[right | mask] (trials, n): each example leans on the two before it, those that were kept themselves on more."""
    lean = mask.astype(float) @ (np.eye(n, k=1) + np.eye(n, k=2))
    return 0.5 + strength * (lean - 1) + 0.1 * mask


def world(masks: int, models: int, strength: float, seed: int, n: int = 12) -> Arms:
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((masks, n)) < 0.5, models, axis=0)
    p = chances(mask, n, strength)
    trials = trials_of(mask, rng.random(p.shape) < p, rng.random(p.shape) < p, models)
    return arms(trials, KINDS)


def true_shares(strength: float, n: int = 12) -> tuple[float, float]:
    """Of test examples and of memorization, from all masks of the four examples that matter to one."""
    of_all = np.zeros((2, 2))  # E[p (1 - p)] and Var(y): of test examples, and of training examples within arms
    for j in range(n):
        near = [k for k in (j - 2, j - 1, j) if k >= 0]
        mask = np.zeros((2 ** len(near), n), bool)
        mask[:, near] = list(product((False, True), repeat=len(near)))
        p = chances(mask, n, strength)[:, j]
        of_all[0] += (p * (1 - p)).mean(), p.mean() * (1 - p.mean())
        for kept in (False, True):
            arm = p[mask[:, j] == kept]
            of_all[1] += (arm * (1 - arm)).mean(), arm.mean() * (1 - arm.mean())
    shares = 1 - of_all[:, 0] / of_all[:, 1]
    return float(shares[0]), float(shares[1])


@pytest.mark.parametrize("strength", [0.0, 0.15])
def test_the_share_of_a_world_that_knows_it(strength: float) -> None:
    test, memorization = true_shares(strength)
    errors: dict[str, list[float]] = {"test": [], "memorization": []}
    claimed: dict[str, list[float]] = {"test": [], "memorization": []}
    for seed in range(60):
        chosen = world(60, 4, strength, seed)
        for name, found, truth in (
            ("test", explained_of_test(chosen), test),
            ("memorization", explained_of_memorization(chosen), memorization),
        ):
            assert found is not None
            assert (found.masks, found.examples) == (60, 12)
            errors[name].append(found.share - truth)
            claimed[name].append(found.stderr)
    for name, wrong in errors.items():
        spread = np.std(wrong)
        assert abs(np.mean(wrong)) < 3 * spread / np.sqrt(len(wrong))  # not biased
        assert 0.75 < np.mean(claimed[name]) / spread < 1.35  # and as unsure as it says


def test_as_many_models_for_each_mask_give_the_analysis_of_variance() -> None:
    chosen = world(9, 5, 0.1, 3)
    y = (
        np.unpackbits(chosen.in_trials.test_correct, axis=1, count=12, bitorder="little")
        .reshape(9, 5, 12)
        .astype(float)
    )
    within = y.var(axis=1, ddof=1).mean(axis=0)
    between = y.mean(axis=1).var(axis=0, ddof=1) - within / 5
    found = explained_of_test(chosen)
    assert found is not None
    assert found.share == pytest.approx(between.sum() / (between + within).sum())
    assert found.least_trials == pytest.approx(1 - found.share)
    without = [explained_of_test(arms(chosen.in_trials.select(np.arange(45) // 5 != k), KINDS)) for k in range(9)]
    shares = np.array([one.share for one in without if one is not None])
    assert found.stderr == pytest.approx(np.sqrt(8 / 9 * ((shares - shares.mean()) ** 2).sum()))


def test_a_run_that_is_not_complete_counts_what_is_there() -> None:
    whole = world(40, 4, 0.15, 1).in_trials
    some = whole.select(np.random.default_rng(0).random(len(whole)) < 0.6)
    found = explained_of_test(arms(some, KINDS))
    assert found is not None
    assert found.share == pytest.approx(true_shares(0.15)[0], abs=4 * found.stderr)


def test_without_repeats_nothing_is_said() -> None:
    assert explained_of_test(world(60, 1, 0.1, 0)) is None
    assert explained_of_memorization(world(60, 1, 0.1, 0)) is None
    assert explained_of_test(world(2, 8, 0.1, 0)) is None


def test_two_learners_on_the_same_masks_give_a_lower_bound() -> None:
    """Equal where they react alike; less where they do not: nothing where they react to other examples."""
    rng = np.random.default_rng(0)
    n, strength = 12, 0.15
    mask = rng.random((6000, n)) < 0.5
    p = chances(mask, n, strength)
    noise = mask, np.zeros(mask.shape, bool)
    one, same, flipped = (
        trials_of(*noise, rng.random(p.shape) < chance, 1) for chance in (p, p, np.roll(p, n // 2, axis=1))
    )
    found, truth = explained_by_both(one, same), true_shares(strength)[0]
    assert found.share == pytest.approx(truth, abs=4 * found.stderr)
    assert found.stderr < truth / 5
    other = explained_by_both(one, flipped)
    assert abs(other.share) < 4 * other.stderr
    with pytest.raises(InputError, match="do not share their masks"):
        explained_by_both(one, trials_of(~mask, *noise[1:], rng.random(p.shape) < p, 1))
