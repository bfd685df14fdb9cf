"""The judge: definitions by hand, a world in which the best score and its ceiling are known, and honest intervals."""

from dataclasses import replace

import numpy as np
import pytest
from bool_trials import make_trials
from scipy.stats import spearmanr

from memfluence.errors import InputError
from memfluence.estimators import judge_scores

N_TRAIN, TESTS = 40, 30


class World:
    """f_j(S) = sum of true scores over S, plus chance: which score is best, and how good it is, is known."""

    def __init__(self, seed: int, *, masks: int = 60, repeats: int = 1, noise: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.true = rng.normal(size=(N_TRAIN, TESTS))
        self.mask = rng.random((masks, N_TRAIN)) < 0.7
        mean = self.mask @ self.true
        self.outcome = np.repeat(mean, repeats, axis=0)
        self.outcome += rng.normal(scale=noise * np.sqrt(N_TRAIN * 0.21), size=self.outcome.shape)
        self.trials = make_trials(
            np.repeat(self.mask, repeats, axis=0), np.zeros((masks * repeats, TESTS)), repeats=repeats
        )
        self.noisy = self.true + rng.normal(scale=1.0, size=self.true.shape)

    def judge(self, scores=None, **options):
        return judge_scores(self.trials, self.outcome, scores or {"true": self.true}, **options)


def test_every_number_is_what_its_definition_says(monkeypatch):
    world = World(0, masks=50, repeats=2)
    monkeypatch.setattr("memfluence.estimators.judging.TESTS_AT_ONCE", 7)
    found = world.judge({"noisy": world.noisy}).scores["noisy"]
    mean = (world.outcome[::2] + world.outcome[1::2]) / 2  # (masks, tests)
    mask, tau = world.mask, world.noisy
    lds = [spearmanr(mask @ tau[:, j], mean[:, j]).statistic for j in range(TESTS)]
    np.testing.assert_allclose(found.lds_of_test, lds)
    assert found.lds.value == pytest.approx(np.mean(lds))
    ranking, drops = [], {1: [], 2: [], 3: []}
    for j in range(TESTS):
        influence = [mean[mask[:, i], j].mean() - mean[~mask[:, i], j].mean() for i in range(N_TRAIN)]
        ranking.append(spearmanr(tau[:, j], influence).statistic)
        for k, drop in drops.items():
            kept = mask[:, np.argsort(-tau[:, j])[:k]].sum(axis=1)
            if (kept == k).any() and (kept == 0).any():
                drop.append(mean[kept == k, j].mean() - mean[kept == 0, j].mean())
    assert found.ranking.value == pytest.approx(np.mean(ranking))
    for k, drop in drops.items():
        assert found.counterfactual[k].value == pytest.approx(np.mean(drop))
        assert found.counterfactual[k].test_examples == len(drop)
    assert len(drops[1]) == TESTS


def test_an_example_that_every_mask_kept_is_not_ranked():
    """Nor one that none kept: nobody knows their influence; the others are ranked as if the two were not there."""
    world = World(0, masks=50)
    mask = world.mask.copy()
    mask[:, 3], mask[:, 5] = True, False
    trials, others = make_trials(mask, np.zeros((50, TESTS))), np.delete(np.arange(N_TRAIN), [3, 5])
    found = judge_scores(trials, world.outcome, {"true": world.true})
    without = make_trials(mask[:, others], np.zeros((50, TESTS)))
    expected = judge_scores(without, world.outcome, {"true": world.true[others]})
    assert found.scores["true"].ranking == expected.scores["true"].ranking
    assert found.ranking_ceiling == expected.ranking_ceiling
    assert found.scores["true"].ranking.lower > 0.2
    mask[:, 1:] = True
    found = judge_scores(make_trials(mask, np.zeros((50, TESTS))), world.outcome, {"true": world.true})
    assert np.isnan([found.scores["true"].ranking.value, found.ranking_ceiling.value]).all()


def test_the_true_score_reaches_the_ceiling_and_no_more():
    """With noise as large as the signal and two models per mask the reliability is 2/3, and its root is the ceiling."""
    results = [World(seed, masks=200, repeats=2).judge() for seed in range(10)]
    ceiling = np.mean([one.lds_ceiling.value for one in results])
    reached = np.mean([one.scores["true"].lds.value for one in results])
    assert ceiling == pytest.approx(np.sqrt(2 / 3), abs=0.02)
    assert reached == pytest.approx(ceiling, abs=0.02)
    ranking = np.mean([one.ranking_ceiling.value for one in results])
    assert np.mean([one.scores["true"].ranking.value for one in results]) == pytest.approx(ranking, abs=0.03)


def test_without_repeats_there_is_no_ceiling_of_the_lds():
    found = World(0).judge()
    assert found.lds_ceiling is None
    assert found.to_json()["ceiling"]["lds"] is None


def test_better_scores_are_judged_better():
    world = World(1, masks=200)
    rng = np.random.default_rng(9)
    found = world.judge({"true": world.true, "noisy": world.noisy, "chance": rng.normal(size=world.true.shape)}).scores
    for what in ("lds", "ranking"):
        true, noisy, chance = (getattr(found[name], what) for name in ("true", "noisy", "chance"))
        assert true.value > noisy.value + 0.1 > chance.value + 0.2
        assert true.lower > noisy.upper
    assert abs(found["chance"].lds.value) < 0.05
    assert found["true"].counterfactual[2].value > found["noisy"].counterfactual[2].value > 1.0
    assert found["true"].lds_minus_first is None
    difference = found["noisy"].lds_minus_first
    assert difference.value == pytest.approx(found["noisy"].lds.value - found["true"].lds.value)
    assert difference.upper < 0
    assert difference.stderr < found["true"].lds.stderr + found["noisy"].lds.stderr


def test_intervals_hold_what_they_promise():
    """Over worlds, the mean of the judge's own values stands for the truth; 500 worlds tell coverage to 0.01."""
    found = []
    for seed in range(500):
        world = World(seed, masks=60, repeats=2)
        found.append(world.judge({"true": world.true, "noisy": world.noisy}, named=(1, 2)))
    for name, means in {
        "lds": [one.scores["noisy"].lds for one in found],
        "difference": [one.scores["noisy"].lds_minus_first for one in found],
        "named 1": [one.scores["noisy"].counterfactual[1] for one in found],
        "named 2": [one.scores["noisy"].counterfactual[2] for one in found],
        "ceiling": [one.lds_ceiling for one in found],
    }.items():
        values = np.array([mean.value for mean in means])
        covered = np.mean([mean.lower <= values.mean() <= mean.upper for mean in means])
        assert 0.93 <= covered <= 0.98, name
        said = np.sqrt(np.mean([mean.stderr**2 for mean in means]))
        assert said == pytest.approx(values.std(ddof=1), rel=0.1), name  # whose own error is 3%


def test_blocks_of_masks_count_once():
    """Every mask four times over, as blocks of four: no surer than the masks by themselves."""
    world = World(5, masks=50)
    alone = world.judge({"noisy": world.noisy}).scores["noisy"].lds
    fourfold = replace(make_trials(np.repeat(world.mask, 4, axis=0), np.zeros((200, TESTS))), block=4)
    together = judge_scores(fourfold, np.repeat(world.outcome, 4, axis=0), {"noisy": world.noisy}).scores["noisy"].lds
    assert together.value == pytest.approx(alone.value, abs=1e-3)  # ranks are shared now
    assert together.stderr == pytest.approx(alone.stderr, rel=0.01)
    one_block = replace(make_trials(world.mask[:8], np.zeros((8, TESTS))), block=8)
    assert np.isnan(judge_scores(one_block, world.outcome[:8], {"true": world.true}).scores["true"].lds.upper)


def test_one_test_example_is_judged_for_other_masks_alone():
    """The ranks' own variance: of a correlation r of normal variables about (1 - r^2)^2 / masks."""
    world = World(6, masks=2000)
    found = judge_scores(world.trials, world.outcome[:, :1], {"true": world.true[:, :1]}).scores["true"]
    r = found.lds.value
    assert found.lds.test_examples == 1
    assert found.lds.stderr == pytest.approx((1 - r**2) / np.sqrt(2000), rel=0.15)
    assert np.isnan(found.ranking.upper)  # which is about other test examples


def test_no_prediction_counts_as_none_and_no_variation_as_nothing():
    world = World(2)
    empty = world.true.copy()
    empty[:, 4] = 0.0
    world.outcome[:, 7] = 3.0
    found = world.judge({"empty": empty}).scores["empty"]
    assert found.lds_of_test[4] == 0.0
    assert np.isnan(found.lds_of_test[7])
    assert found.lds.test_examples == found.ranking.test_examples == TESTS - 1
    world.outcome[:] = 1.0
    nothing = world.judge({"true": world.true}).scores["true"].lds
    assert np.isnan(nothing.value)
    assert nothing.test_examples == 0


def test_a_mask_that_lacks_a_model_is_no_trouble():
    world = World(3, masks=50, repeats=3)
    rows = np.delete(np.arange(150), [4, 77, 78])
    found = judge_scores(world.trials.select(rows), world.outcome[rows], {"true": world.true})
    assert (found.masks, found.trials) == (50, 147)
    whole = world.judge()
    assert found.lds_ceiling.value == pytest.approx(whole.lds_ceiling.value, abs=0.05)


def test_what_cannot_be_judged_is_refused():
    world = World(0)
    with pytest.raises(InputError, match=r"scores mine must be numbers of the shape \(40, 30\)"):
        world.judge({"mine": world.true.T})
    with pytest.raises(InputError, match="scores mine are not finite"):
        world.judge({"mine": np.where(world.true > 2, np.nan, world.true)})
    world.outcome[3, 3] = np.inf
    with pytest.raises(InputError, match="outcomes are not finite"):
        world.judge()
    with pytest.raises(InputError, match="at least 4 masks"):
        judge_scores(world.trials.select(np.arange(3)), world.outcome[:3], {"true": world.true})
