"""Marginal utility: S_h and S'_h from a run whose pairs are known, and a decomposition that adds up exactly."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import CARRIED, N_TEST, make_run, trials_of

from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments import Retraining, utility


def test_the_plan_keeps_all_and_then_all_but_the_examples_in_pairs(tmp_path: Path) -> None:
    plan = utility.plan(make_run(tmp_path), repeats=3)
    assert plan.masks[plan.rows(arm="all")].all()
    without = plan.masks[plan.rows(arm="without")]
    assert without.shape == (3, 40)
    for mask in without:
        assert np.array_equal(np.flatnonzero(~mask), sorted(set(CARRIED.values())))
    assert [one["arm"] for one in plan.purposes] == ["all", "without"] * 3  # by turns, so that a cut has both sides
    assert plan.settings["influenced"] == sorted(CARRIED)
    assert plan.settings["pairs"] == 4


def test_pairs_by_chance_are_said_before_anything_is_trained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = {name: rng.random((40, size)) < 0.5 for name, size in (("train_correct", 40), ("test_correct", N_TEST))}
    run = make_run(tmp_path, 40, **noise)
    sentence = r"S_h would be made of [0-9]+ pairs, of which about [0-9]+ are expected by chance.*\(`infl`, now 0.2\)"
    with pytest.warns(MemfluenceWarning, match=sentence):
        utility.plan(run, mem=0.1, infl=0.2)


def by_hand(repeats: int, n_test: int, influenced: list[int], correct: np.ndarray) -> utility.Result:
    purposes = tuple({"arm": arm, "repeat": k} for arm in ("all", "without") for k in range(repeats))
    masks = np.ones((2 * repeats, 8), bool)
    given = {"about": "x", "repeats": repeats, "n_test": n_test, "influenced": influenced}
    given |= {"removed": 2, "pairs": 3, "influence_from_trials": 50}
    plan = Retraining("utility", masks, purposes, given)
    return utility.summarize(plan, trials_of(masks[: len(correct)], correct))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_decomposition_adds_up_exactly(data: st.DataObject) -> None:
    repeats, n_test = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 40))
    influenced = sorted(data.draw(st.sets(st.integers(0, n_test - 1))))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    models = data.draw(st.integers(repeats + 1, 2 * repeats))  # the last ones may be missing
    correct = rng.random((models, n_test)) < 0.7
    numbers = by_hand(repeats, n_test, influenced, correct).numbers
    parts = numbers["decomposition"]
    assert parts["influenced"] + parts["rest"] == parts["test"]
    for name in ("test", "influenced", "rest"):
        exact = Fraction(parts[name], parts["denominator"])
        assert numbers[name]["contribution"]["mean"] == pytest.approx(float(exact), abs=1e-12)
    whole = Fraction(int(correct[:repeats].sum()), repeats * n_test)
    without = Fraction(int(correct[repeats:].sum()), (models - repeats) * n_test)
    assert Fraction(parts["test"], parts["denominator"]) == whole - without


def test_numbers_by_hand() -> None:
    # Ten test examples, two of them influenced. All kept: 9 and 10 right. Without: 7 and 7, wrong on the influenced.
    correct = np.ones((4, 10), bool)
    correct[0, 9] = False
    correct[2:, [0, 1]] = False
    correct[2:, 5] = False
    numbers = by_hand(2, 10, [0, 1], correct).numbers
    assert numbers["test"]["accuracy"] == pytest.approx({"mean": 0.95, "sd": 0.05 * 2**0.5, "stderr": 0.05, "n": 2})
    assert numbers["test"]["accuracy_without"]["mean"] == pytest.approx(0.7)
    assert numbers["influenced"]["difference"]["mean"] == 1.0
    assert numbers["influenced"]["contribution"]["mean"] == pytest.approx(2 / 10 * 1.0)  # |S'_h| / n_test times it
    assert numbers["rest"]["contribution"]["mean"] == pytest.approx(0.05)
    assert numbers["share_of_influenced"] == pytest.approx(0.2 / 0.25)
    assert numbers["within_one_sd"]  # 0.05 off, the standard deviation is 0.07
    assert not numbers["paired"]


def test_bad_input(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_correct=np.ones((200, N_TEST), bool))
    with pytest.raises(InputError, match=r"has no high-influence pairs to remove. No pair reaches"):
        utility.plan(run)
    with pytest.raises(InputError, match="no trained model of the side 'without'"):
        by_hand(2, 10, [0], np.ones((2, 10), bool))
