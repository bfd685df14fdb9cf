"""Deconvolution, predictions for more trials, and how much another run would differ, against simulated runs."""

import numpy as np
import pytest
from scipy.stats import norm

import studies
from memfluence import designs
from memfluence.errors import InputError
from memfluence.estimators import arms, influence, lemma_bound, lemma_trials, memorization
from memfluence.findings import high_influence_pairs, pair_stability, trials_needed
from memfluence.findings.prediction import EDGES, GRID, _deconvolved, fit_pairs
from memfluence.records import Kind, Trials
from simulated import packed, probit_world


def make_trials(mask, test_correct, train_correct=None, *, kinds=None, repeats=1):
    mask = np.asarray(mask, bool)
    kinds = np.zeros(len(mask), np.int16) if kinds is None else np.asarray(kinds, np.int16)
    train = mask if train_correct is None else np.asarray(train_correct, bool)
    bits = (packed(mask), packed(train), packed(np.asarray(test_correct, bool)))
    return Trials(np.arange(len(mask)), kinds, *bits, mask.shape[1], np.shape(test_correct)[1], repeats)


def a_run(count=300, seed=0):
    rng = np.random.default_rng(seed)
    world = probit_world(rng)
    return world, world.trials(count, rng), rng


def test_deconvolution_finds_the_atoms_that_made_the_estimates():
    rng = np.random.default_rng(0)
    truth = rng.choice([0.0, 0.3], 200_000, p=[0.9, 0.1])
    noise = np.full(len(GRID), 0.06)
    counts = np.histogram(truth + 0.06 * rng.standard_normal(len(truth)), EDGES)[0]
    weight = _deconvolved(counts, noise)
    assert weight.sum() == pytest.approx(1)
    assert weight[np.abs(GRID - 0.3) < 0.055].sum() == pytest.approx(0.1, abs=0.01)
    assert weight[np.abs(GRID) < 0.055].sum() == pytest.approx(0.9, abs=0.01)


def test_draws_are_distributed_as_the_fit():
    world, trials, rng = a_run()
    model = studies.model_of(world, trials)
    estimates = influence(trials, world.kinds).block(model.rows, None)
    columns = np.arange(trials.n_test)
    drawn = model.draw(estimates, columns, rng)
    assert set(np.round(drawn.ravel(), 6)) <= set(np.round(GRID, 6))
    assert drawn.var() < estimates.var()  # the noise is gone
    assert drawn.mean() == pytest.approx(estimates.mean(), abs=0.005)


def test_predictions_for_four_times_the_trials(soak):
    sizes = {} if soak else {"counts": (200, 400), "worlds": 3, "runs": 4}
    for row in studies.predictions(**sizes):
        assert row["predicted"] == pytest.approx(row["pairs"], rel=0.25)
        assert row["predicted  "] == pytest.approx(row["by chance"], rel=0.1)  # however small it is
        # low where most of the pairs at hand are chance, never much too high
        assert row["Jaccard"] - (0.25 if row["from"] < 200 else 0.15) < row["predicted "] < row["Jaccard"] + 0.1


def test_predictions_are_their_definition():
    """Pair by pair, with the normal integral over true memorization in closed form."""
    world, trials, _ = a_run()
    model = studies.model_of(world, trials)
    for count in (100, 300, 2000):
        told = model.predict(count)
        error = model.memorization_error * np.sqrt(1 + model.trials / count)  # of the truth, and of another run
        memorized = norm.sf(0.25, model.memorization, error)  # (n_train,)
        pairs = chance = 0.0
        for group in model.groups.values():
            noise = model._noise(group.accuracy, GRID, count)
            selected = sum(weight * norm.sf(0.15, mu, sd) for weight, mu, sd in zip(group.weight, GRID, noise))
            none = norm.sf(0.15, 0, model._noise(group.accuracy, np.zeros(1), count)[0])
            pairs += (group.pairs_of * memorized * selected).sum()
            chance += (group.pairs_of * memorized * none).sum()
        assert told.pairs == pytest.approx(pairs, rel=1e-3)
        assert told.by_chance == pytest.approx(chance, rel=1e-3)


def test_permuted_masks_select_what_is_exactly_expected_of_them():
    world, trials, _ = a_run(150)
    exact = studies.pairs_by_chance(world, trials)
    found = high_influence_pairs(trials, *world.labelled, permutations=60)
    assert found.expected_by_chance == pytest.approx(exact, abs=4 * found.by_chance_spread / np.sqrt(60))
    assert found.by_chance_spread < exact  # so that the line above says something


def test_said_spread_is_that_of_independent_runs(soak):
    sizes = {} if soak else {"counts": (400,), "runs": 40, "repeats": 5}
    for row in studies.run_to_run(**sizes):
        for truth, said in (("sd of pairs", "said"), ("sd of mean influence", "said "), ("sd of Jaccard", "said   ")):
            # The truth comes from 40 runs, or 20 pairs of them, and is known to 11% and 16%. At 100 trials the sd of
            # pairs is said to be a third too large (docs/statistics.md has the table): wide, on the safe side.
            assert 0.7 * row[truth] < row[said] < 1.4 * row[truth]
        assert row["said  "] == pytest.approx(row["Jaccard"], abs=0.07)


def test_the_same_seed_gives_the_same_spread():
    world, trials, _ = a_run(150)
    assert pair_stability(trials, *world.labelled, resamples=4) == pair_stability(trials, *world.labelled, resamples=4)
    with pytest.raises(InputError, match="At least 4 resamples"):
        pair_stability(trials, *world.labelled, resamples=3)


def test_trials_needed():
    world, trials, _ = a_run()
    found = trials_needed(trials, *world.labelled, stderr=0.02, jaccard=0.8, fdr=0.05)
    errors = memorization(trials, world.kinds).stderr
    target = found["targets"]["stderr"]
    assert target["now"]["memorization_largest"] == errors.max()
    assert target["trials_for"]["memorization_median"] == int(np.ceil(300 * (np.median(errors) / 0.02) ** 2))
    assert target["trials"] < target["lemma_design_trials"] == pytest.approx(lemma_trials(0.7, 0.02), rel=0.02)
    assert target["more"] == target["trials"] - 300
    model = studies.model_of(world, trials)
    needed = found["targets"]["jaccard"]["trials"]
    assert model.predict(needed).jaccard >= 0.8 > model.predict(int(needed * 0.97)).jaccard
    needed = found["targets"]["fdr"]["trials"]
    assert model.predict(needed).chance_share <= 0.05 < model.predict(int(needed * 0.97)).chance_share
    assert [one["trials"] for one in found["predictions"]] == [300, 600, 1200, 2400, 4800]
    assert found["targets"]["jaccard"]["expected_now"] == found["predictions"][0]["jaccard"]
    with pytest.raises(InputError, match="The target `jaccard` must be above 0 and below 1"):
        trials_needed(trials, *world.labelled, jaccard=1.5)


@pytest.mark.parametrize("design", ["fixed", "lemma", "balanced:10", "bernoulli", "repeats:50"])
def test_the_lemma_is_claimed_for_its_own_design_alone(design):
    """With 50 models per mask, and a learner whose outcome is a function of the mask, errors are those of 6 masks."""
    made = designs.make(design, n_train=40, keep=0.7, seed=0)
    drawn = [made.trial(number) for number in range(300)]
    masks = np.array([trial.mask for trial in drawn])
    right = np.array([np.random.default_rng(list(packed(mask[None])[0])).random(30) < 0.5 for mask in masks])
    trials = make_trials(masks, right, kinds=[trial.kind for trial in drawn], repeats=made.repeats)
    found = trials_needed(trials, made.kinds, np.zeros(40, int), np.zeros(30, int), mem=-1)
    assert found["lemma_applies"] == (design == "lemma")
    assert found["masks"] == (6 if design == "repeats:50" else 300)
    said = found["predictions"][0]["lemma_design_stderr"]
    assert said == pytest.approx(lemma_bound(40, 28, found["masks"]) ** 0.5)
    assert np.sqrt(np.nanmean(influence(trials, made.kinds).block() ** 2)) < said  # the truth is 0


@pytest.mark.parametrize("design", ["fixed", "lemma", "repeats:3"])
def test_the_fits_noise_is_the_standard_error(design):
    """Under every design the noise of the fit, at an accuracy of one half, is what single pairs have."""
    made = designs.make(design, n_train=40, keep=0.7, seed=0)
    drawn = [made.trial(number) for number in range(600)]
    kinds = [trial.kind for trial in drawn]
    rng = np.random.default_rng(0)
    right = rng.random((600, 20)) < 0.5
    right = right[np.arange(600) // made.repeats * made.repeats]  # models on one mask agree: the bound is met
    trials = make_trials([trial.mask for trial in drawn], right, kinds=kinds, repeats=made.repeats)
    everyone = [(np.arange(40), np.arange(20))]
    model = fit_pairs(arms(trials, made.kinds), everyone, mem=-1, infl=0.15)
    noise = model._noise(0.5, np.zeros(1), 600)[0]
    assert noise == pytest.approx(influence(trials, made.kinds).block_with_errors().stderr.mean(), rel=0.03)
    assert influence(trials, made.kinds).block().std() == pytest.approx(noise, rel=0.1)


def test_masks_that_leave_nobody_out_predict_nothing():
    trials = make_trials(np.ones((10, 4)), np.ones((10, 3)))
    with pytest.raises(InputError, match="keep all training examples or none"):
        trials_needed(trials, (Kind(None, None),), np.zeros(4, int), np.zeros(3, int), jaccard=0.5)


def test_nobody_memorized_is_out_of_sight():
    rng = np.random.default_rng(0)
    trials = make_trials(rng.random((200, 4)) < 0.5, np.ones((200, 3)), np.ones((200, 4)))
    found = trials_needed(trials, (Kind(0.5, None),), np.zeros(4, int), np.zeros(3, int), jaccard=0.5, stderr=0.01)
    assert found["targets"]["jaccard"]["trials"] is None
    assert found["targets"]["stderr"]["trials"] > 0


def test_fewer_trials_than_at_hand_are_no_answer():
    """With two trials noise selects every other pair, and two runs agree on a third of them: no way to repeat pairs."""
    rng = np.random.default_rng(0)
    mask = rng.random((150, 40)) < 0.7
    trials = make_trials(mask, rng.random((150, 60)) < 0.8)
    model = fit_pairs(arms(trials, (Kind(0.7, None),)), [(np.arange(40), np.arange(60))], mem=0.25, infl=0.15)
    now = model.predict(150).jaccard
    assert now < 0.1 < model.predict(2).jaccard
    needed = model.trials_for(jaccard=0.1)
    assert needed is None or (needed > 150 and model.predict(needed).jaccard >= 0.1)
    assert model.trials_for(jaccard=now / 2) == 150


def test_a_rare_split_does_not_ask_for_more_trials_than_the_worst_case():
    """An example that 2 of 100 trials left out has a large error now; it will be left out more often."""
    rng = np.random.default_rng(0)
    mask = np.array([rng.permutation(10) < 7 for _ in range(100)])
    mask[:, 0] = True
    mask[:2, 0] = False
    trials = make_trials(mask, rng.random((100, 5)) < 0.5, rng.random((100, 10)) < 0.5)
    found = trials_needed(trials, (Kind(0.7, 7),), np.zeros(10, int), np.zeros(5, int), stderr=0.02)
    kept = mask.mean()
    assert found["targets"]["stderr"]["expected_now"] > 0.25
    assert found["targets"]["stderr"]["trials"] == int(np.ceil(1 / (4 * kept * (1 - kept) * 0.02**2)))


def test_out_of_sight_is_none():
    world, trials, _ = a_run(100)
    assert studies.model_of(world, trials).trials_for(jaccard=0.999999) is None
