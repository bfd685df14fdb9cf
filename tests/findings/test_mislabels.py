"""Likely mislabels: equal to a loop over examples and models, ranked as stated, and planted flips come first."""

from collections import Counter

import numpy as np
import pytest

import memfluence as mf
from memfluence.errors import InputError
from memfluence.estimators import memorization
from memfluence.estimators.intervals import wilson_interval
from memfluence.findings import likely_mislabels
from memfluence.records import Kind, Trials

BOTH = (Kind(0.6, None),)
N_CLASSES = 4


def make_world(trials=50, n_train=24, seed=0, repeats=1):
    """Random predictions in which a kept example is mostly right; code N_CLASSES is 'none of them'."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, N_CLASSES, n_train)
    mask = (rng.random((trials, n_train)) < 0.6)[np.arange(trials) // repeats * repeats]
    mask[:, 0], mask[:, 1] = True, False  # never left out, never kept
    predictions = rng.integers(0, N_CLASSES + 1, (trials, n_train)).astype(np.uint8)
    predictions = np.where(mask & (rng.random(mask.shape) < 0.8), labels, predictions)
    predictions[:, 2] = labels[2]  # nobody ever says anything else
    correct = predictions == labels
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, correct, correct[:, :3])]
    kinds = np.zeros(trials, np.int16)
    return Trials(np.arange(trials), kinds, *packed, n_train, 3, repeats), labels, predictions, mask


@pytest.mark.parametrize("at_once", [2**23, 300])
@pytest.mark.parametrize("repeats", [1, 2])
def test_agreement_equals_a_loop(monkeypatch, at_once, repeats):
    monkeypatch.setattr("memfluence.findings.mislabels.PREDICTIONS_AT_ONCE", at_once)
    trials, labels, predictions, mask = make_world(repeats=repeats)
    found = likely_mislabels(trials, BOTH, labels, N_CLASSES, predictions)
    for place, i in enumerate(found.index):
        said = [int(code) for code in predictions[~mask[:, i], i]]
        others = Counter(code for code in said if code not in (labels[i], N_CLASSES))
        best = min(others, key=lambda code: (-others[code], code)) if others else labels[i]
        assert found.agreement.suggestion[place] == best
        if said:
            share = others[best] / len(said)
            assert found.agreement.share[place] == share
            masks = len(said) // repeats
            low, high = wilson_interval(np.array(share), np.array(masks))
            assert found.agreement.lower[place] == low
            ranked = (mask.shape[0] - mask.sum(axis=0)) // repeats  # masks that left each example out
            number = np.where(2 * ranked[i] < np.median(ranked), ranked[i], np.median(ranked))
            assert found.score[place] == wilson_interval(np.array(share), number)[0]
            assert found.agreement.upper[place] == high
            shrunk = (share * masks + 1) / (masks + 2)
            assert found.agreement.stderr[place] == pytest.approx(np.sqrt(shrunk * (1 - shrunk) / (masks + 2)))
    assert found.index[-1] == 0  # never left out: no score
    assert np.isnan(found.score[-1])


@pytest.mark.parametrize("with_predictions", [True, False])
def test_the_order_is_by_score_then_kept_wrong_then_index(with_predictions):
    trials, labels, predictions, _ = make_world(trials=9)
    found = likely_mislabels(trials, BOTH, labels, N_CLASSES, predictions if with_predictions else None)
    mem = memorization(trials, BOTH)
    np.testing.assert_array_equal(np.sort(found.index), np.arange(24))
    np.testing.assert_array_equal(found.label, labels[found.index])
    np.testing.assert_array_equal(found.memorization, mem.value[found.index])
    np.testing.assert_array_equal(found.accuracy_out, mem.accuracy_out[found.index])
    keys = [(-s, a, i) for s, a, i in zip(found.score, found.accuracy_in, found.index) if not np.isnan(s + a)]
    assert keys == sorted(keys)
    if not with_predictions:
        typical = np.median(mem.trials_out)
        number = np.where(2 * mem.trials_out < typical, mem.trials_out, typical)
        expected = wilson_interval(1 - mem.accuracy_out, number)[0]
        np.testing.assert_array_equal(found.score, expected[found.index])
        assert found.agreement is None


@pytest.mark.parametrize("with_predictions", [True, False])
def test_chance_numbers_of_held_out_models_do_not_rank(with_predictions):
    """All rejected by every held-out model: kept wrong decides, not who was left out most; but three are too few."""
    rng = np.random.default_rng(0)
    mask = rng.random((60, 20)) < 0.6
    mask[:, 7] = True
    mask[:3, 7] = False
    fits = np.linspace(0, 1, 20)  # the chance that a model that kept an example is right on it
    right = mask & (rng.random(mask.shape) < fits)
    predictions = np.where(right, 0, 1).astype(np.uint8)
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, right, right[:, :1])]
    trials = Trials(np.arange(60), np.zeros(60, np.int16), *packed, 20, 1)
    found = likely_mislabels(trials, BOTH, np.zeros(20, int), 2, predictions if with_predictions else None)
    assert len(set(found.trials_out.tolist())) > 5
    assert found.index[-1] == 7
    assert (np.diff(found.accuracy_in[:-1]) >= 0).all()


@pytest.mark.parametrize("at_once", [2**23, 300])
@pytest.mark.parametrize("with_predictions", [True, False])
def test_margins_rank_by_their_held_out_mean(monkeypatch, at_once, with_predictions):
    """Equal to a loop; 1 / (1 + exp(margin)) of each held-out model, 1/2 where there is no number."""
    monkeypatch.setattr("memfluence.findings.mislabels.PREDICTIONS_AT_ONCE", at_once)
    trials, labels, predictions, mask = make_world(repeats=2)
    margins = np.random.default_rng(1).normal(1, 4, mask.shape).astype(np.float16)
    margins[3, 5], margins[:, 6], margins[:, 7] = np.nan, -60, -50  # both rejected by 1, as far as floats can say
    said = predictions if with_predictions else None
    found = likely_mislabels(trials, BOTH, labels, N_CLASSES, said, margins=margins)
    degree = np.where(np.isnan(margins), 0.5, 1 / (1 + np.exp(margins.astype(float))))
    ranked = (~mask).sum(axis=0) // 2
    for place, i in enumerate(found.index[:-1]):
        number = np.where(2 * ranked[i] < np.median(ranked), ranked[i], np.median(ranked))
        expected = wilson_interval(degree[~mask[:, i], i].mean(), number)[0]
        assert found.score[place] == pytest.approx(expected, rel=1e-12)
    assert found.index[:2].tolist() == [6, 7]
    assert (np.diff(found.score[:-1]) <= 0).all()
    assert found.index[-1] == 0  # never left out
    votes = likely_mislabels(trials, BOTH, labels, N_CLASSES, said)
    assert (votes.agreement is None) == (found.agreement is None) == (not with_predictions)
    np.testing.assert_array_equal(np.sort(votes.accuracy_out), np.sort(found.accuracy_out))


@pytest.mark.parametrize("with_margins", [True, False])
def test_believed_are_those_rejected_as_firmly_as_labels_are_accepted_on_average(with_margins):
    """All left out alike, of 5 classes: 3 of 40 labels are rejected by 95%, 2 by 70%, the others accepted by 90%."""
    mask = np.arange(100)[:, None] % 2 == np.zeros(40, int)
    rejected = np.r_[np.full(3, 0.95), np.full(2, 0.7), np.full(35, 0.1)]
    right = (np.arange(100)[:, None] // 2 + 0.5) / 50 > rejected  # of the 50 models that left each out, this share
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, right, right[:, :1])]
    trials = Trials(np.arange(100), np.zeros(100, np.int16), *packed, 40, 1)
    margins = np.tile(np.log(1 / rejected - 1), (100, 1)) if with_margins else None
    found = likely_mislabels(trials, BOTH, np.arange(40) % 5, 5, margins=margins)
    assert found.believed.tolist() == [True] * 3 + [False] * 37  # the bar is 0.83
    assert sorted(found.index[found.believed]) == [0, 1, 2]
    at_chance = likely_mislabels(trials, BOTH, (np.arange(40) >= 38).astype(int), 2, margins=margins)
    assert not at_chance.believed.any()  # 95% have one label, more than the models get right
    assert at_chance.index.tolist() == found.index.tolist()


def test_believed_labels_are_the_beginning_of_the_list():
    """Three held-out models are too few to believe, however they agree."""
    rng = np.random.default_rng(0)
    mask = rng.random((60, 20)) < 0.6
    mask[:, 7], mask[:3, 7] = True, False
    wrong = np.isin(np.arange(20), (3, 7))
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, mask | ~wrong, mask[:, :1])]
    trials = Trials(np.arange(60), np.zeros(60, np.int16), *packed, 20, 1)
    found = likely_mislabels(trials, BOTH, np.arange(20) % 2, 2)
    assert found.index[:2].tolist() == [3, 7]
    assert found.believed.tolist() == [True] + [False] * 19


def test_a_run_ranks_by_the_margins_that_it_recorded(tmp_path):
    data = mf.datasets.load("longtail?n_train=60&n_test=10&n_classes=3&subpopulations=8&flip=0.1")
    run = mf.run(data, trials=12, record=["margin"], out=tmp_path / "run", progress=False)
    of = run.trials, run.info.kinds, run.label_codes[0], 3
    margins = likely_mislabels(*of, margins=run.recorded("train_margin"))
    assert run.mislabels()["index"].tolist() == margins.index.tolist()
    votes = run.find_mislabels(margins=False)
    assert votes.index.tolist() == likely_mislabels(*of).index.tolist()
    assert votes.score.tolist() != margins.score.tolist()


def test_arrays_of_another_shape_are_refused():
    trials, labels, predictions, _ = make_world()
    with pytest.raises(InputError, match=r"margins must have the shape \(trials, n_train\)"):
        likely_mislabels(trials, BOTH, labels, N_CLASSES, margins=np.zeros((2, 24)))
    with pytest.raises(InputError, match=r"shape \(trials, n_train\)"):
        likely_mislabels(trials, BOTH, labels, N_CLASSES, predictions[:, :5])


def test_planted_flips_come_first(tmp_path):
    """40 of 400 labels flipped: of the first 40 of the list at least 90% are those, with the right suggestion."""
    data = mf.datasets.load("longtail?n_train=400&n_test=20&n_classes=5&subpopulations=20&flip=0.1&seed=1")
    flipped = data.attributes["train_flipped"]
    truth = data.attributes["subpopulation_class"][data.attributes["train_subpopulation"]]
    run = mf.run(data, trials=80, record=["prediction"], out=tmp_path / "run", progress=False)
    table = run.mislabels()
    assert 30 <= table["believed"].sum() <= 50
    assert table["believed"].is_monotonic_decreasing
    first = table["index"][:40]
    assert flipped[first].mean() >= 0.9
    right = table["suggestion"][:40].to_numpy() == truth[first]
    assert right[flipped[first]].mean() >= 0.95
    without = likely_mislabels(run.trials, run.info.kinds, run.label_codes[0], 5)
    assert flipped[without.index[:40]].mean() >= 0.8
