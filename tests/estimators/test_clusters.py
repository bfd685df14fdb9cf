"""Errors under designs whose trials are not independent."""

import numpy as np
import pytest
from bool_trials import BOTH, make_trials

import studies
from memfluence import designs
from memfluence.estimators import arms, influence, memorization
from memfluence.estimators.intervals import Z95, agresti_caffo, student_quantile
from memfluence.records import Trials


def clustered_trials(*, trials=48, n_train=7, n_test=5, repeats=1, block=1, seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.random((trials, n_train)) < 0.6
    mask = mask[np.arange(trials) // repeats * repeats]
    lean = 0.3 * mask[:, :1] + 0.3 * (np.arange(trials) // max(repeats, block) % 2)[:, None]
    test = rng.random((trials, n_test)) < 0.3 + lean
    train = rng.random((trials, n_train)) < 0.3 + lean
    made = make_trials(mask, test, train, repeats=repeats)
    return Trials(**{**vars(made), "block": block})


def jackknife_by_hand(trials, train, test):
    """Leave out one cluster after another and ask the plain estimator."""
    cluster = trials.numbers // trials.cluster
    plain = Trials(**{**vars(trials), "repeats": 1, "block": 1})
    without = [influence(plain.select(cluster != one), BOTH).block()[train, test] for one in np.unique(cluster)]
    count = len(without)
    return (count - 1) / count * sum((one - np.mean(without)) ** 2 for one in without), count


@pytest.mark.parametrize(("repeats", "block"), [(4, 1), (1, 6)])
def test_equals_a_jackknife_by_hand(repeats, block):
    trials = clustered_trials(repeats=repeats, block=block)
    estimates = influence(trials, BOTH)
    x, a, y, b = estimates.counts()
    effects = []
    for i in range(trials.n_train):
        for j in range(trials.n_test):
            found = estimates.at([i], [j])
            p, q, n_in, n_out = x[i, j] / a[i, 0], y[i, j] / b[i, 0], a[i, 0], b[i, 0]
            variance, count = jackknife_by_hand(trials, i, j)
            effect = max(1.0, variance / (p * (1 - p) / n_in + q * (1 - q) / n_out))
            effect = min(effect, repeats) if repeats > 1 else effect
            centre, error = agresti_caffo(p, n_in / effect, q, n_out / effect)
            assert found.value[0] == p - q
            assert found.stderr[0] == pytest.approx(error)
            assert found.lower[0] == pytest.approx(max(-1, centre - student_quantile(count - 1) * error))
            assert found.upper[0] == pytest.approx(min(1, centre + student_quantile(count - 1) * error))
            effects.append(effect)
    assert len(set(effects)) > trials.n_test  # neither bound decides everywhere


@pytest.mark.parametrize(("repeats", "block"), [(4, 1), (1, 6)])
def test_memorization_is_influence_on_oneself(repeats, block):
    trials = clustered_trials(repeats=repeats, block=block)
    on_itself = Trials(**{**vars(trials), "test_correct": trials.train_correct, "n_test": trials.n_train})
    same = np.arange(trials.n_train)
    found, expected = memorization(trials, BOTH), influence(on_itself, BOTH).at(same, same)
    for name in ("value", "stderr", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_chunks_change_nothing(monkeypatch):
    trials = clustered_trials(repeats=4)
    pairs = np.repeat(np.arange(7), 5), np.tile(np.arange(5), 7)
    expected = influence(trials, BOTH).at(*pairs)
    monkeypatch.setattr("memfluence.estimators.intervals.BITS_AT_ONCE", 100)
    np.testing.assert_array_equal(influence(trials, BOTH).at(*pairs).lower, expected.lower)
    assert influence(trials, BOTH).at([], []).value.shape == (0,)


def test_models_that_always_agree_count_once():
    """Three models on each of 40 masks, all alike, tell as much as one on each."""
    rng = np.random.default_rng(0)
    mask, right = rng.random((40, 3)) < 0.5, rng.random((40, 2)) < 0.5
    once = influence(make_trials(mask, right), BOTH).at([0, 1], [1, 0])
    thrice = influence(make_trials(np.repeat(mask, 3, 0), np.repeat(right, 3, 0), repeats=3), BOTH).at([0, 1], [1, 0])
    np.testing.assert_allclose(thrice.stderr, once.stderr, rtol=0.05)
    np.testing.assert_array_equal(thrice.value, once.value)


def test_where_all_agree_the_safe_side_is_taken():
    mask = np.repeat(np.random.default_rng(0).random((10, 1)) < 0.5, 3, axis=0)
    found = influence(make_trials(mask, np.ones((30, 1)), repeats=3), BOTH).at([0], [0])
    kept = int(mask[::3].sum())
    assert found.stderr[0] == agresti_caffo(1.0, kept, 1.0, 10 - kept)[1]


def test_a_single_cluster_and_an_empty_arm():
    mask = np.array([[1, 1], [0, 1]], bool)
    trials = Trials(**{**vars(make_trials(mask, mask)), "block": 10})
    found = influence(trials, BOTH).at([0, 1], [0, 0])
    assert found.value[0] == 1
    assert found.stderr[0] > 0
    assert np.isnan([found.value[1], found.stderr[1], found.lower[1], found.upper[1]]).all()


def test_students_quantile():
    assert student_quantile(1) == pytest.approx(12.706, abs=1e-3)
    assert student_quantile(9) == pytest.approx(2.262, abs=1e-3)
    assert student_quantile(10**7) == pytest.approx(Z95, abs=1e-6)
    assert student_quantile(0) == Z95


def test_the_whole_matrix_takes_the_bound_of_a_block():
    design = designs.make("balanced:5", n_train=20, keep=0.6, seed=0)
    mask = np.array([design.trial(number).mask for number in range(50)])
    trials = Trials(**{**vars(make_trials(mask, mask)), "block": 5})
    chosen = arms(trials, design.kinds)
    np.testing.assert_allclose(chosen.sample_in, chosen.trials_in * 0.8)
    np.testing.assert_allclose(chosen.sample_out, chosen.trials_out * 0.8)


def test_intervals_hold_the_truth(soak):
    """Balanced and repeated designs cover; taking repeats for independent trials would not."""
    runs = {"runs": 100} if soak else {"runs": 12}
    found = {row["design"]: row for row in studies.cluster_coverage(**runs)}
    for design, row in found.items():
        assert 0.94 < row["coverage"] < 0.975, design
        assert 0.85 < row["squared error / stderr^2"] < 1.15, design
    assert found["repeats:3"]["coverage as if independent"] < 0.9
