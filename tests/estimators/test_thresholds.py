"""What is at a threshold is decided as the fractions decide it, on every path."""

from fractions import Fraction

import numpy as np
import pytest
from bool_trials import BOTH, make_trials, unpacked

from memfluence.estimators import _int8, arms, at_least, influence, lowest
from memfluence.findings import high_influence_pairs
from memfluence.findings.agreement import INFLUENCE, Part, agreement


@pytest.mark.parametrize("most", [40, 200, 10**4, 5 * 10**5])
def test_an_estimate_reaches_a_threshold_as_its_fraction_does(most):
    """Arms of up to so many models, thresholds of three decimals, counts on the threshold or one to either side."""
    rng = np.random.default_rng(0)
    on_it = 0
    for _ in range(5000):
        threshold = Fraction(int(rng.integers(-20, 21)) * 50, 1000) if rng.random() < 0.5 else Fraction(123, 1000)
        a, b = (int(count) for count in rng.integers(1, most // 20 + 1, 2) * rng.choice([1, 20]))
        b = a if rng.random() < 0.5 else b
        y = int(rng.integers(0, b + 1))
        x = min(max(0, int((threshold + Fraction(y, b)) * a) + int(rng.integers(-1, 2))), a)
        exact = Fraction(x, a) - Fraction(y, b)
        on_it += exact == threshold
        assert at_least(np.array([x / a - y / b, np.nan]), float(threshold)).tolist() == [exact >= threshold, False]
    assert on_it > 10


def test_the_float_alone_would_fall_short():
    assert 12 / 20 - 9 / 20 < 0.15 <= 12 / 20 - 9 / 20 + 2**-52
    assert at_least(12 / 20 - 9 / 20, 0.15)
    assert not at_least(np.nextafter(lowest(0.15), 0), 0.15)


def test_float32_of_a_file_is_compared_in_float32():
    """float32 of 0.7 is less than 0.7."""
    for threshold in (0.7, np.float64(0.7)):
        assert at_least(np.array([0.7, 0.25, 0.6999], np.float32), threshold).tolist() == [True, False, False]


@pytest.fixture
def on_the_threshold():
    """Half of 40 trials kept each example; with 9 + x of 20 right minus 9 of 20, influences are multiples of 1/20."""
    mask = np.repeat([True, False], 20)[:, None] & np.ones((40, 2), bool)
    place = np.arange(40) % 20
    correct = np.stack([np.where(mask[:, 0], place < 9 + x, place < 9) for x in range(12)], axis=1)  # (40, 12)
    return make_trials(mask, correct, mask)


def share(right):
    return Fraction(int(right.sum()), len(right))


@pytest.mark.parametrize("method", ["matmul", "popcount", "minority"])
@pytest.mark.parametrize("twentieths", range(12))
def test_every_scan_finds_what_is_on_the_threshold(on_the_threshold, method, twentieths):
    trials, threshold = on_the_threshold, twentieths / 20
    mask, _, correct = unpacked(trials)
    exact = [[share(right[kept]) - share(right[~kept]) for right in correct.T] for kept in mask.T]
    expected = [(i, j) for i in range(2) for j in range(12) if exact[i][j] >= Fraction(twentieths, 20)]
    assert len(expected) == 2 * (12 - twentieths)
    assert list(zip(*influence(trials, BOTH, method=method).at_least(threshold))) == expected
    everything = np.arange(2), np.arange(12)
    scanned = _int8.DeviceScan(arms(trials, BOTH), "cpu").scan(*everything, threshold=threshold)[2:]
    assert list(zip(*scanned)) == expected
    labels = np.zeros(2, int), np.zeros(12, int)
    for device in ("cpu", "cpu:0"):
        pairs = high_influence_pairs(trials, BOTH, *labels, infl=threshold, permutations=0, device=device)
        assert sorted(zip(pairs.train_index, pairs.test_index)) == expected


def test_agreement_counts_what_is_on_its_thresholds(on_the_threshold):
    values = influence(on_the_threshold, BOTH).block()
    found = agreement([Part(values, values, np.True_, np.True_)], INFLUENCE)
    np.testing.assert_array_equal(found.thresholds, INFLUENCE)
    exact = [2 * sum(Fraction(x, 20) >= Fraction(percent, 100) for x in range(12)) for percent in range(5, 61)]
    assert found.shared.tolist() == exact
