"""Membership inference: the slow way gives the same scores; worlds with known Gaussians have a known best curve."""

import numpy as np
import pytest
from scipy.stats import norm

from memfluence import designs
from memfluence.errors import InputError
from memfluence.findings import membership, membership_attack
from memfluence.findings.membership import RATES, area_under, rate_at, receiver, resampled
from memfluence.records import Kind, Trials
from memfluence.seeding import generator

BOTH = (Kind(0.5, None),)


def make_trials(mask, repeats=1):
    packed = np.packbits(mask, axis=1, bitorder="little")
    kinds = np.zeros(len(mask), np.int16)
    return Trials(np.arange(len(mask)), kinds, packed, packed, packed[:, :1], mask.shape[1], 8, repeats)


def make_world(trials, n_train, effect, *, seed=0, repeats=1):
    """Log-odds N(m_i, 1) of models that left example i out, and N(m_i + effect, 1) of those that kept it."""
    rng = np.random.default_rng(seed)
    mask = (rng.random((trials, n_train)) < 0.5)[np.arange(trials) // repeats * repeats]
    logits = 3 * rng.normal(size=n_train) + rng.normal(size=mask.shape) + effect * mask
    return make_trials(mask, repeats), mask, logits


@np.errstate(invalid="ignore", divide="ignore")
def slow_scores(mask, logits, cluster, variance):
    """Online and offline scores by a loop over targets and examples."""
    online, offline = np.full((2, *mask.shape), np.nan)
    for t in range(len(mask)):
        others = cluster != cluster[t]
        fits = [[logits[others & (mask[:, i] == side), i] for side in (True, False)] for i in range(mask.shape[1])]
        pooled = [
            sum(((fit[side] - fit[side].mean()) ** 2).sum() for fit in fits if len(fit[side]))
            / sum(len(fit[side]) - 1 for fit in fits if len(fit[side]))
            for side in (0, 1)
        ]
        for i, fit in enumerate(fits):
            least = 1 if variance == "pooled" else 2
            own = [part.var(ddof=1) if len(part) > 1 else np.nan for part in fit]
            spread = np.sqrt(pooled if variance == "pooled" else own)
            if len(fit[1]) >= least:
                offline[t, i] = (logits[t, i] - fit[1].mean()) / spread[1]
            if min(map(len, fit)) >= least:
                logs = [norm.logpdf(logits[t, i], fit[side].mean(), spread[side]) for side in (0, 1)]
                online[t, i] = logs[0] - logs[1]
    return online, offline


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("variance", ["example", "pooled"])
def test_scores_equal_a_loop_in_which_no_trial_is_on_both_sides(monkeypatch, variance, repeats):
    monkeypatch.setattr(membership, "AT_ONCE", 100)  # several tiles
    trials, mask, logits = make_world(18, 9, 1.0, repeats=repeats)
    seen = {}

    def keep(scores, member, cluster, **options):
        seen[len(seen)] = scores
        np.testing.assert_array_equal(member, mask)
        return receiver(scores, member, cluster, **options)

    monkeypatch.setattr(membership, "receiver", keep)
    found = membership_attack(trials, BOTH, logits, variance=variance)
    assert (found.targets, found.shadows) == (18, 18 - repeats)
    for scores, expected in zip(seen.values(), slow_scores(mask, logits, np.arange(18) // repeats, variance)):
        np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=1e-5)  # float32


def test_an_outlier_in_the_target_does_not_reach_its_own_shadow_models():
    """Whatever a target says changes its own scores and nothing that they are compared with."""
    trials, _, logits = make_world(40, 5, 1.0)
    changed = logits.copy()
    changed[7] += 1000.0
    cluster = np.arange(40)
    for moments in ("mean", "squares", "count"):
        one, other = (
            np.concatenate([getattr(m, moments)[:, 7] for _, _, m in membership._shadows(trials, values, cluster)])
            for values in (logits - logits.mean(0), changed - logits.mean(0))
        )
        if moments == "mean":  # about the mean of all trials, which 1000 / 40 has moved
            one, other = one[0] - one[1], other[0] - other[1]
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_rates_and_area_by_counting():
    rng = np.random.default_rng(2)
    inside, outside = np.sort(rng.integers(0, 20, 60)), np.sort(rng.integers(-5, 15, 90))  # with ties
    pairs = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
    assert area_under(inside, outside) == pytest.approx(pairs, abs=1e-12)
    for rate in (0.0, 0.01, 0.1, 0.5, 1.0):
        thresholds = [-np.inf, *outside, np.inf]
        best = max((inside > cut).mean() for cut in thresholds if (outside > cut).mean() <= rate)
        assert rate_at(inside, outside, rate) == pytest.approx(best, abs=1e-12)
    assert np.isnan(area_under(inside[:0], outside))


def test_resampling_by_counting_equals_joining_the_scores_of_the_drawn_models():
    rng = np.random.default_rng(6)
    member = rng.random((12, 40)) < 0.6
    scores = rng.normal(size=member.shape) + member
    scores[3, 5] = np.nan
    cluster = np.arange(12) // 2
    known = ~np.isnan(scores)
    outside = np.sort(scores[known & ~member])
    rates = np.array([0.02, 0.1, 0.5, 1.0])
    draws = resampled(scores, member & known, ~member & known, cluster, outside, rates, 20, 9)
    drawn = [np.arange(6), *(generator(9, "resample", k).integers(0, 6, 6) for k in range(20))]
    for row, units in zip(draws, drawn):
        models = np.concatenate([np.flatnonzero(cluster == unit) for unit in units])
        some, inside = scores[models], member[models]
        sides = [np.sort(some[~np.isnan(some) & side]) for side in (inside, ~inside)]
        np.testing.assert_allclose(row[1:], [rate_at(*sides, rate) for rate in (*RATES, *rates)], atol=1e-12)
        assert abs(row[0] - area_under(*sides)) < 0.5 / 100  # members of a step of the curve count half


@pytest.mark.parametrize("effect", [0.8, 1.5])
def test_the_best_curve_of_known_gaussians_is_reached(effect):
    """With equal variances the likelihood ratio has TPR = Phi(Phi^-1(FPR) + effect) and area Phi(effect / sqrt 2).

    The attack must estimate means and variances from 200 shadow models on each side, which costs it less than a tenth
    of the separation.
    """
    trials, _, logits = make_world(400, 400, effect, seed=5)
    found = membership_attack(trials, BOTH, logits)
    assert found.variance == "example"
    for roc in (found.online, found.offline):
        assert roc.members + roc.non_members == 400 * 400
        assert abs(roc.auc.value - norm.cdf(effect / np.sqrt(2))) < 0.005
        for rate, share in roc.at.items():
            best, less = (norm.cdf(norm.ppf(rate) + d) for d in (effect, 0.9 * effect))
            assert less < share.value < best + (share.upper - share.lower)
            assert share.lower <= share.value <= share.upper
        best = norm.cdf(norm.ppf(roc.rates[60:-1]) + effect)
        assert np.abs(roc.found[60:-1] - best).max() < 0.02
    z = (found.separation - effect) / found.stderr  # (n_train,)
    assert abs(z.mean()) < 4 / np.sqrt(400)
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * 400)
    assert found.detected.mean() == pytest.approx(found.online.at[0.01].value, abs=0.002)


def test_the_true_likelihood_ratio_has_the_closed_form_curve():
    """The curve itself, with scores that need no estimation: errors are binomial."""
    effect = 1.2
    _, mask, logits = make_world(300, 300, effect, seed=8)
    means = (logits - effect * mask).mean(axis=0)  # the true ones but for an error of 1 / sqrt(300)
    scores = effect * (logits - means - effect / 2)
    roc = receiver(scores, mask, np.arange(300))
    for rate, share in roc.at.items():
        expected = norm.cdf(norm.ppf(rate) + effect)
        slope = norm.pdf(norm.ppf(rate) + effect) / norm.pdf(norm.ppf(rate))
        error = np.sqrt(expected * (1 - expected) / roc.members + slope**2 * rate * (1 - rate) / roc.non_members)
        assert abs(share.value - expected) < 4 * error
        assert 0.4 * error < (share.upper - share.lower) / 3.92 < 2.5 * error


@pytest.mark.parametrize("variance", ["example", "pooled"])
@pytest.mark.parametrize("repeats", [1, 4])
def test_permuted_membership_has_area_one_half(variance, repeats):
    _, _, logits = make_world(120, 500, 2.0, seed=3, repeats=repeats)
    rng = np.random.default_rng(4)
    others = (rng.random((120 // repeats, 500)) < 0.5).repeat(repeats, axis=0)  # masks that nothing depends on
    found = membership_attack(make_trials(others, repeats), BOTH, logits, variance=variance)
    for roc in (found.online, found.offline):
        assert abs(roc.auc.value - 0.5) < 4 * (roc.auc.upper - roc.auc.lower) / 3.92
        assert abs(roc.auc.value - 0.5) < 0.02
        assert roc.at[0.01].value < 0.02


def test_few_shadow_models_share_one_variance():
    trials, _, logits = make_world(30, 50, 1.0)
    found = membership_attack(trials, BOTH, logits)
    assert found.variance == "pooled"
    assert not np.isnan(found.separation).any()


def test_an_example_always_kept_has_no_score():
    _, mask, logits = make_world(30, 20, 1.0)
    mask[:, 3] = True
    found = membership_attack(make_trials(mask), BOTH, logits)
    assert np.isnan(found.separation[3])
    assert np.isnan(found.detected[3])
    assert found.online.members + found.online.non_members == 30 * 19


def test_misuse():
    trials, _, logits = make_world(6, 5, 1.0)
    with pytest.raises(InputError, match="shape"):
        membership_attack(trials, BOTH, logits[:, :3])
    with pytest.raises(InputError, match="auto, example or pooled"):
        membership_attack(trials, BOTH, logits, variance="both")
    with pytest.raises(InputError, match="three independent trials"):
        membership_attack(trials.select(np.arange(2)), BOTH, logits[:2])


def test_log_odds_that_are_not_finite_are_refused():
    trials, _, logits = make_world(30, 5, 1.0)
    logits[3, 2] = np.inf
    with pytest.raises(InputError, match="not finite; bound them"):
        membership_attack(trials, BOTH, logits)


def test_the_error_of_the_separation_under_the_lemmas_design_is_that_of_all_trials():
    """Each arm has its own trials there, but both means are over all of them: known Gaussians, half a unit apart."""
    design = designs.make("lemma", n_train=300, keep=0.5, seed=0)
    drawn = [design.trial(number) for number in range(400)]
    mask = np.array([trial.mask for trial in drawn])
    packed = np.packbits(mask, axis=1, bitorder="little")
    kinds = np.array([trial.kind for trial in drawn], np.int16)
    trials = Trials(np.arange(400), kinds, packed, packed, packed[:, :1], 300, 8)
    logits = np.random.default_rng(0).normal(size=mask.shape) + 0.5 * mask
    found = membership_attack(trials, design.kinds, logits, resamples=4)
    scores = (found.separation - 0.5) / found.stderr
    assert 0.88 < np.std(scores) < 1.12  # 300 examples: known to 4%


@pytest.mark.parametrize("variance", ["example", "pooled"])
def test_the_error_of_the_separation_knows_unequal_arms_and_variances(variance):
    """Three of four trials keep each of 2000 examples, and kept ones vary three times as much, or a third as much."""
    rng = np.random.default_rng(0)
    mask = rng.permuted(np.tile(np.arange(160) < 120, (2000, 1)), axis=1).T  # (160, 2000)
    for deviation in (3.0, 1 / 3):
        logits = np.where(mask, 2.0 + deviation * rng.normal(size=mask.shape), rng.normal(size=mask.shape))
        found = membership_attack(make_trials(mask), BOTH, logits, variance=variance, resamples=4)
        truth = 2.0 / np.sqrt((deviation**2 + 1) / 2)
        z = (found.separation - truth) / found.stderr
        assert abs(z.std() - 1) < 4 / np.sqrt(2 * 2000)
