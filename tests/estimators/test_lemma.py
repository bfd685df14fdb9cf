"""The Lemma's estimate and bound, and that the one stays below the other."""

import numpy as np
import pytest
from bool_trials import make_trials

import studies
from memfluence.errors import InputError
from memfluence.estimators import influence, lemma_bound, lemma_trials
from memfluence.records import Kind

LEMMA = (Kind(0.5, 2, "in"), Kind(0.5, 1, "out"))


def test_two_terms_and_the_filled_in_half():
    #         in trials (size 2)        out trials (size 1)
    mask = [[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
    right = [[1], [1], [0], [0]]
    trials = make_trials(mask, right, kinds=[0, 1, 0, 1])
    found = studies.lemma_estimate(trials, LEMMA)
    # 0: kept in both in-trials, one right; never left out of the out-trials, so that term is 1/2
    # 1: kept in both in-trials; left out of both out-trials, one right
    # 2: never kept in the in-trials (1/2); left out of both out-trials
    np.testing.assert_array_equal(found[:, 0], [0.5 - 0.5, 0.5 - 0.5, 0.5 - 0.5])
    assert np.isnan(influence(trials, LEMMA).block()[[0, 2], 0]).all()  # the product does not fill in
    trials = make_trials(mask, [[1], [0], [1], [0]], kinds=[0, 1, 0, 1])
    np.testing.assert_array_equal(studies.lemma_estimate(trials, LEMMA)[:, 0], [1 - 0.5, 1 - 0, 0.5 - 0])


def test_what_the_lemma_is_not_about():
    for sizes in ((10, 0, 5), (10, 10, 5), (10, 5, 0)):
        with pytest.raises(InputError, match="The Lemma needs"):
            lemma_bound(*sizes)


def test_the_bound_by_hand_and_the_statement_is_the_looser_one():
    by_hand = 10 / (7 * 20) + 10 / (4 * 20) + np.exp(-7 * 20 / 160) / 4 + np.exp(-4 * 20 / 160) / 4
    assert lemma_bound(10, 7, 20) == pytest.approx(by_hand)
    assert lemma_bound(10, 7, 20, simple=True) == pytest.approx(1 / 6 + 1 / 14 + np.exp(-6 / 16) / 2)
    for n in (5, 40, 1000):
        for m in range(1, n, max(1, n // 17)):
            for t in (2, 50, 4000):
                assert lemma_bound(n, m, t) <= lemma_bound(n, m, t, simple=True)


@pytest.mark.parametrize(("keep", "stderr"), [(0.7, 0.02), (0.5, 0.1), (0.9, 0.05)])
def test_trials_for_an_error_are_the_least(keep, stderr):
    trials = lemma_trials(keep, stderr)
    assert lemma_bound(1000, round(1000 * keep), trials, simple=True) <= stderr**2 * (1 + 1e-9)
    assert lemma_bound(1000, round(1000 * keep), trials - 1, simple=True) > stderr**2 * (1 - 1e-9)


def test_the_error_stays_below_the_bound(soak):
    sizes = {} if soak else {"counts": (50, 300), "columns": 12, "work": 40_000}
    for row in studies.lemma_errors(**sizes):
        for column in ("coin", "always right", "effects"):
            assert row[column] < row["bound in the proof"] <= row["bound as stated"]
        # and is what it should be: for a coin about 1/(4 * models) for each term
        if row["t"] >= 300:
            m, n, t = round(40 * row["m/n"]), 40, row["t"]
            expected = n / (2 * m * t) + n / (2 * (n - m + 1) * t)
            assert expected * 0.8 < row["coin"] < expected * 1.35
