"""Adjusted estimates: against refitting without each trial, by enumeration of all masks, and in a world of votes."""

import importlib.util
import json
import subprocess
import sys
from itertools import combinations, product
from math import comb
from pathlib import Path

import numpy as np
import pytest
from bool_trials import make_trials, random_trials, unpacked

from memfluence import designs
from memfluence.errors import InputError
from memfluence.estimators import adjusted as module
from memfluence.estimators import (
    adjusted_influence,
    adjusted_memorization,
    influence,
    memorization,
    real_influence,
    real_memorization,
)
from memfluence.estimators.adjusted import _INTERCEPT, Masks
from memfluence.records import Kind

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "variance.py"
BERNOULLI = (Kind(0.6, None),)


def coefficients(x, y, share, keep):
    """Ridge with a nearly free intercept, as the textbook writes it: (intercept, coefficients)."""
    size = max(1.0, x.shape[1] * keep * (1 - keep))
    scale = np.sqrt(_INTERCEPT * size)
    whole = np.column_stack([np.full(len(x), scale), x])
    found = np.linalg.solve(whole.T @ whole + size * (1 / share - 1) * np.eye(whole.shape[1]), whole.T @ y)
    return scale * found[0], found[1:]


def given(n, size, keep):
    """E[z_k | i kept] and E[z_k | i left out]."""
    return (keep, keep) if size is None else ((size - 1) / (n - 1), size / (n - 1))


def adjusted_plainly(mask, y, i, features, share, keep, size, side_outcome=None):
    """e of every trial, by refitting without it; `side_outcome` is what is regressed where it is not y."""
    z = mask.astype(float)
    regressed = y if side_outcome is None else side_outcome
    expected = np.where(mask[:, i], *given(mask.shape[1], size, keep))
    e = np.empty(len(y))
    for t in range(len(y)):
        others = np.arange(len(y)) != t
        _, b = coefficients(z[others][:, features] - keep, regressed[others], share, keep)
        e[t] = y[t] - sum(b[f] * (z[t, k] - expected[t]) for f, k in enumerate(features) if k != i)
    return e


@pytest.mark.parametrize("features", [7, 40])  # fewer and more than trials
def test_errors_without_the_trial_itself(features):
    trials = random_trials(23, 40, 5)
    mask, _, y = unpacked(trials)
    masks = Masks(trials.mask, np.arange(features), 0.6)
    for share in (0.05, 0.7):
        found = masks.residuals(y.astype(float), share)
        for t in range(23):
            others = np.arange(23) != t
            x = mask[:, :features] - 0.6
            intercept, b = coefficients(x[others], y[others].astype(float), share, 0.6)
            np.testing.assert_allclose(found[t], y[t] - intercept - x[t] @ b, atol=1e-9)


@pytest.mark.parametrize("size", [None, 12])
@pytest.mark.parametrize("every", [0, 5000])  # the class's masks alone, and those of all
def test_influence_equals_refitting_without_each_trial(size, every, monkeypatch):
    monkeypatch.setattr(module, "ALL_EXAMPLES", every)
    rng = np.random.default_rng(0)
    mask = np.array([rng.permutation(20) < 12 for _ in range(30)])
    y = mask[:, :6] ^ (rng.random((30, 6)) < 0.2)
    labels = np.arange(20) % 2, np.arange(6) % 2
    trials = make_trials(mask, y)
    estimates = adjusted_influence(trials, (Kind(0.6, size),), *labels, shares=(0.3,))
    # with one share and no zero, every test example is adjusted that its class's masks predict at all
    for j in range(6):
        _, fitted = estimates._fitted(int(labels[1][j]))
        place = j // 2
        if fitted.share[place] == 0:
            expected = influence(trials, (Kind(0.6, size),)).block(None, [j])[:, 0]
        else:
            features = np.flatnonzero(labels[0] == labels[1][j]) if fitted.which[place] == 0 else np.arange(20)
            expected = []
            for i in range(20):
                e = adjusted_plainly(mask, y[:, j].astype(float), i, features, 0.3, 0.6, size)
                expected.append(e[mask[:, i]].mean() - e[~mask[:, i]].mean())
        np.testing.assert_allclose(estimates.block(None, [j])[:, 0], expected, atol=1e-9)
    assert any((estimates._fitted(label)[1].share > 0).any() for label in (0, 1))


def test_memorization_equals_refitting_without_each_trial(monkeypatch):
    monkeypatch.setattr(module, "ALL_EXAMPLES", 0)
    rng = np.random.default_rng(0)
    mask = np.array([rng.permutation(10) < 6 for _ in range(60)])
    right = mask | np.roll(mask, 2, axis=1) & np.roll(mask, 4, axis=1)  # two others of the class teach an example too
    labels = np.arange(10) % 2
    trials = make_trials(mask, right[:, :1], right)
    found = adjusted_memorization(trials, (Kind(0.6, 6),), labels, shares=(0.5,))
    plain = memorization(trials, (Kind(0.6, 6),))
    assert (found.accuracy_in == 1).all()
    assert (found.accuracy_out != plain.accuracy_out).any()
    for i in np.flatnonzero(found.accuracy_out != plain.accuracy_out):
        y, out = right[:, i].astype(float), ~mask[:, i]
        side = np.where(out, (y - y[out].mean()) / 0.4, 0)
        e = adjusted_plainly(mask, y, i, np.flatnonzero(labels == labels[i]), 0.5, 0.6, 6, side)
        np.testing.assert_allclose(found.accuracy_out[i], e[out].mean(), atol=1e-9)
    np.testing.assert_allclose(found.value, found.accuracy_in - found.accuracy_out)


@pytest.mark.parametrize("design", ["fixed", "bernoulli"])
def test_unbiased_over_all_masks(design, monkeypatch):
    """The mean over every sequence of masks is the truth, whatever the outcome; for influence it is so exactly."""
    monkeypatch.setattr(module.AdjustedInfluence, "_fit", fit_always)
    n, trials = (4, 4) if design == "fixed" else (3, 4)
    if design == "fixed":
        subsets = np.array([[k in some for k in range(n)] for some in combinations(range(n), 2)])
        kinds = (Kind(0.5, 2),)
    else:
        subsets = np.array(list(product([False, True], repeat=n)))
        kinds = (Kind(0.5, None),)
    outcome = np.random.default_rng(1).standard_normal((len(subsets), 1))  # of a model trained on each subset
    labels = np.zeros(n, dtype=int), np.zeros(1, dtype=int)
    values = []
    for chosen in product(range(len(subsets)), repeat=trials):
        rows = subsets[list(chosen)]
        made = make_trials(rows, np.zeros((trials, 1)))
        values.append(adjusted_influence(made, kinds, *labels, outcome=outcome[list(chosen)]).block()[:, 0])
    truth = [outcome[subsets[:, i]].mean() - outcome[~subsets[:, i]].mean() for i in range(n)]
    np.testing.assert_allclose(np.nanmean(values, axis=0), truth, atol=1e-9)


def fit_always(self, fits, y):
    """The masks of the class with one penalty, chosen before any trial was seen."""
    tests = y.shape[1]
    left = fits[0].residuals(y, 0.5)
    return module._Fitted(fits, np.zeros(tests, int), np.full(tests, 0.5), y, left)


def votes(seed, trials=600, n=40, voters=5):
    """Right where most of five training examples were kept: masks explain a part that is linear, and all of it."""
    mask = np.random.default_rng(seed).random((trials, n)) < 0.6
    return make_trials(mask, mask[:, :voters].sum(1, keepdims=True) > voters / 2)


def test_less_variance_and_honest_errors_where_masks_matter():
    weight = sum(comb(4, k) * 0.6**k * 0.4 ** (4 - k) for k in (2,))  # the other four are split evenly
    truth = np.where(np.arange(40) < 5, weight, 0.0)
    labels = np.zeros(40, dtype=int), np.zeros(1, dtype=int)
    squared, covered = [], []
    for seed in range(60):
        trials = votes(seed)
        found = adjusted_influence(trials, BERNOULLI, *labels).block_with_errors()
        plain = influence(trials, BERNOULLI).block()
        squared.append([(plain[:, 0] - truth) ** 2, (found.value[:, 0] - truth) ** 2])
        covered.append((found.lower[:, 0] <= truth) & (truth <= found.upper[:, 0]))
    plain_error, error = np.mean(squared, axis=(0, 2))
    # Five equal voters explain 5 * 0.24 * weight^2 / (p (1 - p)) of the variance linearly: 66%.
    assert error < 0.45 * plain_error
    assert 0.93 < np.mean(covered) < 0.97


def test_errors_of_a_strong_pair_do_not_credit_its_own_effect():
    """Right with example 0, or with both of two others: influence 1 - 0.6^2, most of what the masks explain."""
    labels = np.zeros(10, dtype=int), np.zeros(1, dtype=int)
    scores = []
    for seed in range(400):
        mask = np.random.default_rng(seed).random((200, 10)) < 0.6
        trials = make_trials(mask, mask[:, :1] | (mask[:, 1:2] & mask[:, 2:3]))
        found = adjusted_influence(trials, BERNOULLI, *labels).block_with_errors([0])
        scores.append((found.value[0, 0] - 0.64) / found.stderr[0, 0])
    assert 0.93 < np.mean(np.abs(scores) < 1.96) < 0.97
    assert 0.92 < np.std(scores) < 1.08


def test_memorization_has_less_variance_and_no_bias_that_shows():
    """Held out, an example is right where two others of its class were kept; under `fixed` that has a closed form."""
    n, size = 20, 12
    truth = 1 - size / (n - 1) * (size - 1) / (n - 2)
    errors, covered = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mask = np.array([rng.permutation(n) < size for _ in range(200)])
        right = mask | (np.roll(mask, 2, axis=1) & np.roll(mask, 4, axis=1))
        trials = make_trials(mask, right[:, :1], right)
        found = adjusted_memorization(trials, (Kind(0.6, size),), np.arange(n) % 2)
        errors.append([memorization(trials, (Kind(0.6, size),)).value - truth, found.value - truth])
        covered.append((found.lower <= truth) & (truth <= found.upper))
    plain_error, error = np.mean(np.square(errors), axis=(0, 2))
    assert error < 0.5 * plain_error
    bias = np.mean(errors, axis=2)[:, 1]  # (seeds,)
    assert abs(bias.mean()) < 3 * bias.std() / np.sqrt(len(bias))
    assert 0.93 < np.mean(covered) < 0.99


def test_intervals_of_right_and_wrong_stay_within_their_range():
    """Every example carries itself: memorization and influence 1, whose upper ends normal intervals would pass."""
    mask = np.random.default_rng(0).random((40, 8)) < 0.5
    trials, labels = make_trials(mask, mask, mask), np.zeros(8, dtype=int)
    found = adjusted_memorization(trials, BERNOULLI, labels)
    pairs = adjusted_influence(trials, BERNOULLI, labels, labels).block_with_errors()
    assert (found.value + 1.96 * found.stderr > 1).all()
    assert (found.upper == 1).all()
    assert (np.diagonal(pairs.upper) == 1).all()
    assert min(found.lower.min(), pairs.lower.min()) >= -1


def test_no_share_is_algorithm_1():
    trials = random_trials(90, 30, 8)
    labels = np.arange(30) % 3, np.arange(8) % 3
    found = adjusted_influence(trials, BERNOULLI, *labels, shares=(0.0,)).block()
    np.testing.assert_allclose(found, influence(trials, BERNOULLI).block(), atol=1e-12)
    adjusted = adjusted_memorization(trials, BERNOULLI, labels[0], shares=(0.0,))
    plain = memorization(trials, BERNOULLI)
    np.testing.assert_allclose(adjusted.value, plain.value, atol=1e-12)
    np.testing.assert_allclose(adjusted.stderr, plain.stderr)


def test_real_outcomes_and_their_errors():
    trials = random_trials(90, 30, 8)
    values = np.random.default_rng(0).standard_normal((90, 30))
    labels = np.arange(30) % 3, np.arange(8) % 3
    found = adjusted_memorization(trials, BERNOULLI, labels[0], outcome=values, shares=(0.0,))
    plain = real_memorization(trials, BERNOULLI, values)
    np.testing.assert_allclose(found.value, plain.value)
    np.testing.assert_allclose(found.stderr, plain.stderr)
    some = adjusted_influence(trials, BERNOULLI, *labels, outcome=values[:, :8], shares=(0.0,)).block_with_errors()
    expected = real_influence(trials, BERNOULLI, values[:, :8]).block_with_errors()
    np.testing.assert_allclose(some.value, expected.value, atol=1e-12)
    np.testing.assert_allclose(some.stderr, expected.stderr)


def test_parts_of_the_matrix_agree_with_it():
    trials = votes(0, trials=200)
    labels = np.arange(40) % 2, np.zeros(1, dtype=int)
    estimates = adjusted_influence(trials, BERNOULLI, *labels)
    whole = estimates.block()
    np.testing.assert_allclose(estimates.block([7, 3], [0]), whole[[7, 3]], atol=1e-12)
    assert set(estimates.top_k(5).index[0]) == set(np.argsort(-whole[:, 0])[:5])


def test_what_trials_cannot_say_is_nan():
    mask = np.random.default_rng(0).random((50, 6)) < 0.5
    mask[:, 0], mask[:, 1] = True, False
    trials = make_trials(mask, mask[:, 2:3], mask)
    labels = np.zeros(6, dtype=int), np.zeros(1, dtype=int)
    found = adjusted_influence(trials, BERNOULLI, *labels).block_with_errors()
    assert np.isnan(found.value[:2]).all()
    assert np.isfinite(found.value[2:]).all()
    assert np.isnan(adjusted_memorization(trials, BERNOULLI, labels[0]).value[:2]).all()


@pytest.mark.parametrize("name", ["lemma", "repeats"])
def test_designs_that_it_cannot_serve_are_refused(name):
    design = designs.make(name, n_train=20)
    rows = [design.trial(number) for number in range(8)]
    mask = np.array([trial.mask for trial in rows])
    trials = make_trials(mask, mask[:, :2], kinds=[trial.kind for trial in rows], repeats=design.repeats)
    with pytest.raises(InputError, match="fixed, balanced or bernoulli"):
        adjusted_influence(trials, design.kinds, np.zeros(20, dtype=int), np.zeros(2, dtype=int))


def test_the_benchmark_of_docs_variance_shows_the_gain(tmp_path):
    """`benchmarks/variance.py` at a tiny size: its worlds, its judge, and a table of trials from a file."""
    spec = importlib.util.spec_from_file_location("variance", BENCHMARK)
    variance = importlib.util.module_from_spec(spec)
    sys.modules["variance"] = variance  # where dataclasses look up what they are annotated with
    spec.loader.exec_module(variance)
    world = variance.Neighbours(False, examples=60)
    samples = [(world.sample("fixed", 60, seed), world.exact_truth(42)) for seed in range(2)]
    found = variance.compare(samples)["estimators"]
    assert found["adjusted"]["influence mse relative"] < 0.5
    one = samples[0][0]
    one.earlier = (samples[1][0],)
    assert "2 checkpoints, adjusted" in variance.estimates(one)
    file = tmp_path / "trials.npz"
    packed = {name: one.bits(name, 60) for name in ("mask", "train_correct", "test_correct")}
    np.savez(file, **packed, train_labels=one.labels[0], test_labels=one.labels[1])
    out = tmp_path / "found.json"
    command = [sys.executable, BENCHMARK, "--no-longtail", "--cifar100", f"tiny={file}", "--out", out]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| fixed, 30 | adjusted | " in printed
    assert json.loads(out.read_text())["CIFAR-100 (tiny)"]["fixed, 30"]["samples"] == 2
