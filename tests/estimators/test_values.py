"""Banzhaf and Shapley values against exact enumeration of games with up to 12 players."""

import itertools
import math

import numpy as np
import pytest
from bool_trials import make_trials, random_trials, unpacked

from memfluence import designs
from memfluence.errors import InputError
from memfluence.estimators import arms, banzhaf_values, mean_utility, shapley_values

WEIGHTS = np.array([9, 8, 6, 5, 4, 4, 3, 2, 1, 1, 1, 0])


def majority(players):
    """Right if the kept examples outvote the others: steep, and the last player adds nothing."""
    weights = WEIGHTS[-players:]
    return lambda mask: (2 * mask @ weights > weights.sum()).astype(float)


def gloves(players):
    """Pairs of a left and a right glove: the first three are right ones and scarce."""
    return lambda mask: np.minimum(mask[:, :3].sum(axis=1), mask[:, 3:].sum(axis=1)) / 3.0


def learning_curve(players):
    """As an accuracy does, it grows fast and then little, and some of it is chance."""
    bonus = np.linspace(-0.02, 0.04, players)
    return lambda mask: 0.9 - 0.8 * np.exp(-mask.sum(axis=1) / 2) + mask @ bonus


def every_subset(players):
    return (np.arange(2**players)[:, None] >> np.arange(players)) & 1 == 1  # (2**n, n)


def contributions(game, players, weight):
    """sum over S without i of weight(|S|) * (U(S + i) - U(S)), by enumeration."""
    subsets = every_subset(players)
    worth = game(subsets)
    found = np.zeros(players)
    for i, code in itertools.product(range(players), range(2**players)):
        if not code >> i & 1:
            found[i] += weight(code.bit_count()) * (worth[code | 1 << i] - worth[code])
    return found


def exact_banzhaf(game, players):
    return contributions(game, players, lambda size: 2.0 ** (1 - players))


def exact_shapley(game, players, smallest=0):
    """Smallest > 0: the semivalue in which sizes from there on count alike."""
    return contributions(
        game,
        players,
        lambda size: (size >= smallest) / math.comb(players - 1, size) / (players - smallest),
    )


def play(design, players, game, count, seed, *, noise=0.0, **options):
    """Trials of a design, and the utility of each."""
    made = designs.make(design, n_train=players, seed=seed, **options)
    mask = np.stack([made.trial(k).mask for k in range(count)])
    chance = np.random.default_rng(seed).normal(scale=noise, size=count) if noise else 0.0
    return make_trials(mask, np.zeros((count, 1))), game(mask) + chance


def check_unbiased_and_honest(exact, estimates):
    """Over repetitions: means equal the truth, and errors are those that the estimates really have."""
    values, errors = (np.stack([getattr(one, name) for one in estimates]) for name in ("value", "stderr"))
    repetitions = len(values)
    spread = values.std(axis=0, ddof=1)
    exactly_known = spread < 1e-12
    np.testing.assert_allclose(values[0][exactly_known], exact[exactly_known], atol=1e-12)
    z = (values.mean(axis=0) - exact)[~exactly_known] / spread[~exactly_known] * math.sqrt(repetitions)
    assert np.abs(z).max() < 4
    ratio = np.sqrt((errors**2).mean(axis=0))[~exactly_known] / spread[~exactly_known]
    assert 0.9 < ratio.mean() < 1.1
    covered = (np.stack([one.lower for one in estimates]) <= exact) & (
        exact <= np.stack([one.upper for one in estimates])
    )
    assert 0.92 < covered[:, ~exactly_known].mean() < 0.975


GAMES = [(majority, 12), (gloves, 7), (learning_curve, 10)]


def test_banzhaf_values_without_the_empty_subset_are_as_much_too_low_as_the_docs_say():
    subsets, rule = every_subset(5), learning_curve(5)
    found = banzhaf_values(make_trials(subsets[1:], np.zeros((31, 1))), rule(subsets[1:])).value
    without = np.array([rule(subsets[1:][~subsets[1:, i]]).mean() for i in range(5)])
    too_low = (without - rule(subsets[:1])) / 2**4
    np.testing.assert_allclose(found, exact_banzhaf(rule, 5) - too_low, atol=1e-12)


@pytest.mark.parametrize(("game", "players"), GAMES)
def test_banzhaf_values_equal_enumeration(game, players):
    rule = game(players)
    estimates = [
        banzhaf_values(*play("bernoulli", players, rule, 400, seed, keep=0.5, noise=0.1)) for seed in range(200)
    ]
    check_unbiased_and_honest(exact_banzhaf(rule, players), estimates)


@pytest.mark.parametrize(("game", "players"), GAMES)
def test_shapley_values_equal_enumeration(game, players):
    rule = game(players)
    empty = float(rule(np.zeros((1, players), bool))[0])
    estimates = [
        shapley_values(*play("uniform", players, rule, 400, seed, noise=0.1), empty=empty) for seed in range(200)
    ]
    check_unbiased_and_honest(exact_shapley(rule, players), estimates)


@pytest.mark.parametrize(("design", "smallest"), [("uniform", 1), ("uniform:4", 4)])
def test_without_the_empty_subset_values_are_those_of_larger_ones(design, smallest):
    rule = learning_curve(9)
    estimates = [
        shapley_values(*play(design, 9, rule, 300, seed, noise=0.05), smallest=smallest) for seed in range(200)
    ]
    check_unbiased_and_honest(exact_shapley(rule, 9, smallest), estimates)


def test_both_converge_on_twelve_players():
    """20,000 trials of one run: within 4 standard errors, which are small against the values."""
    rule = majority(12)
    for exact, found in (
        (exact_banzhaf(rule, 12), banzhaf_values(*play("bernoulli", 12, rule, 20_000, 1, keep=0.5))),
        (exact_shapley(rule, 12), shapley_values(*play("uniform", 12, rule, 20_000, 1), empty=0.0)),
    ):
        assert np.abs((found.value - exact) / found.stderr).max() < 4
        assert found.stderr.max() < 0.01 < 0.2 < exact.max()
    assert abs(exact_banzhaf(rule, 12)[0] - exact_shapley(rule, 12)[0]) > 0.05  # they are two different things


def test_a_few_trials_are_unbiased_too():
    """Seven trials, whose usual utility is fitted on five or six of them: the mean over many runs is exact still."""
    rule = learning_curve(5)
    values = np.stack([shapley_values(*play("uniform", 5, rule, 7, seed), empty=0.1).value for seed in range(4000)])
    exact = exact_shapley(rule, 5)
    assert np.abs((values.mean(axis=0) - exact) / values.std(axis=0) * math.sqrt(4000)).max() < 4


def test_the_size_explains_most_of_the_error():
    """Why the usual utility of a size is subtracted: the plain weighted mean has a far larger error."""
    rule = learning_curve(10)
    trials, utility = play("uniform", 10, rule, 2000, 3)
    found = shapley_values(trials, utility, empty=0.1)
    mask, _, _ = unpacked(trials)
    sizes = mask.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        weights = np.where(sizes == 10, 1.0, np.where(mask, 10 / sizes, -10 / (10 - sizes)))
    plain = weights * utility[:, None]  # (trials, players)
    plain_error = plain.std(axis=0, ddof=1) / math.sqrt(2000)
    np.testing.assert_allclose(plain.mean(axis=0) - 0.01, exact_shapley(rule, 10), atol=4 * plain_error.max())
    assert (found.stderr < 0.3 * plain_error).all()


def test_one_test_example_gives_its_influence():
    trials = random_trials(80, 12, 9)
    mask, _, right = unpacked(trials)
    found = banzhaf_values(trials, mean_utility(trials, None, [4]))
    for i in range(12):
        kept, left_out = right[mask[:, i], 4], right[~mask[:, i], 4]
        assert found.value[i] == pytest.approx(kept.mean() - left_out.mean(), abs=1e-14)
        variance = kept.var(ddof=1) / len(kept) + left_out.var(ddof=1) / len(left_out)
        assert found.stderr[i] == pytest.approx(math.sqrt(variance), abs=1e-14)
    margins = np.random.default_rng(0).normal(size=(80, 9))
    np.testing.assert_allclose(mean_utility(trials, margins, [1, 5]), margins[:, [1, 5]].mean(axis=1))
    np.testing.assert_allclose(mean_utility(trials, None), right.mean(axis=1))


def test_what_the_trials_cannot_say_is_nan():
    mask = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0]], bool)
    found = banzhaf_values(make_trials(mask, np.zeros((3, 1))), [0.5, 0.25, 1.0])
    assert np.isnan(found.value[[0, 2]]).all()
    assert found.value[1] == pytest.approx(0.5)
    assert np.isnan(found.stderr).all()  # one trial left example 1 out
    one = make_trials(mask[:1], np.zeros((1, 1)))
    assert np.isnan(shapley_values(one, [1.0]).value).all()


def test_what_cannot_be_used_is_refused():
    trials, utility = play("uniform", 6, gloves(6), 20, 0)
    with pytest.raises(InputError, match="one finite number for each of the 20 trials"):
        banzhaf_values(trials, utility[:-1])
    with pytest.raises(InputError, match="one finite number"):
        shapley_values(trials, np.where(np.arange(20) == 3, np.nan, utility))
    with pytest.raises(InputError, match="leave out `empty`"):
        shapley_values(trials, utility, smallest=2, empty=0.0)
    with pytest.raises(InputError, match="smallest has 5"):
        shapley_values(trials, utility, smallest=5)
    with pytest.raises(InputError, match="cannot be compared by whether they kept"):
        arms(trials, designs.make("uniform", n_train=6).kinds)
    for wrong in ([], [1], [-1], [0.5]):
        with pytest.raises(InputError, match="test examples must"):
            mean_utility(trials, None, wrong)
