"""Removal: which models are planned, and what is made of them, against counts by hand."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import MEMORIZED, N_TRAIN, arrays, make_run, trials_of

from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments import Retraining, removal


def test_the_plan_removes_the_memorized_and_as_many_random_ones_anew_in_each_repeat(tmp_path: Path) -> None:
    plan = removal.plan(make_run(tmp_path), thresholds=[0.5], repeats=4)
    assert plan.settings["thresholds"] == [0.3, 0.5]  # the statement about share and utility is at 0.3
    assert plan.masks[plan.rows(arm="all")].all()
    for threshold in (0.3, 0.5):
        memorized = plan.masks[plan.rows(arm="memorized", threshold=threshold)]
        random = plan.masks[plan.rows(arm="random", threshold=threshold)]
        assert len(memorized) == len(random) == 4
        assert np.array_equal(np.flatnonzero(~memorized[0]), MEMORIZED)
        assert (memorized == memorized[0]).all()
        assert (random.sum(1) == N_TRAIN - len(MEMORIZED)).all()
        assert len(np.unique(random, axis=0)) == 4
    controls = plan.masks[plan.rows(arm="random")]
    assert len(np.unique(controls, axis=0)) == 8  # no two controls of the experiment are alike


def test_random_controls_are_uniform(tmp_path: Path) -> None:
    plan = removal.plan(make_run(tmp_path), thresholds=[0.3], repeats=400)
    removed = (~plan.masks[plan.rows(arm="random")]).mean(0)  # (n_train,), expected 5 / 40
    expected = len(MEMORIZED) / N_TRAIN
    assert np.abs(removed - expected).max() < 4.5 * np.sqrt(expected * (1 - expected) / 400)


def test_the_same_seed_gives_the_same_plan_and_json_gives_it_back(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    plan, again, other = (removal.plan(run, [0.3], 3, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(plan.masks, again.masks)
    assert not np.array_equal(plan.masks, other.masks)
    back = Retraining.from_json(plan.to_json())
    assert np.array_equal(back.masks, plan.masks)
    assert back.to_json() == plan.to_json()


def test_what_a_repeat_removes_depends_on_its_number_and_the_seed_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    at_once, grown = removal.plan(run, [0.3, 0.5], 5), removal.plan(run, [0.3, 0.5], 5, begun=[2, 3])
    assert grown.settings["begun"] == [2, 3, 5]
    assert grown.known_by == 2 * 5
    for repeat in range(5):
        for one in at_once.rows(repeat=repeat):
            (same,) = grown.rows(**at_once.purposes[one])
            assert np.array_equal(at_once.masks[one], grown.masks[same])
    assert np.array_equal(grown.masks[:10], removal.plan(run, [0.3, 0.5], 2).masks)


def test_means_spreads_and_costs_by_hand(tmp_path: Path) -> None:
    plan = removal.plan(make_run(tmp_path), thresholds=[0.3], repeats=2)
    correct = np.zeros((6, 10), bool)
    for row, right in enumerate((9, 10, 5, 7, 8, 8)):  # all, all, memorized, memorized, random, random
        correct[row, :right] = True
    plan.settings["n_test"] = 10  # type: ignore[index]
    result = removal.summarize(plan, trials_of(plan.masks, correct))
    point = result.numbers["memorized"]
    assert result.numbers["points"] == [point]
    assert (point["removed"], point["share"]) == (5, 5 / 40)
    assert point["accuracy"] == pytest.approx({"mean": 0.6, "sd": 0.1 * 2**0.5, "stderr": 0.1, "n": 2})
    assert point["accuracy_random"] == pytest.approx({"mean": 0.8, "sd": 0.0, "stderr": 0.0, "n": 2})
    assert point["cost"]["mean"] == pytest.approx(0.95 - 0.6)
    assert point["cost"]["stderr"] == pytest.approx((0.05**2 + 0.1**2) ** 0.5)
    assert point["cost_random"]["mean"] == pytest.approx(0.95 - 0.8)
    assert point["excess"]["mean"] == pytest.approx(0.2)
    assert "40 training examples" in result.title
    assert "200 models; 2 models a point" in result.title
    assert len(result.table) == 6
    assert result.table["removed"].tolist() == [0, 0, 5, 5, 5, 5]


def test_points_without_trials_are_null(tmp_path: Path) -> None:
    plan = removal.plan(make_run(tmp_path), thresholds=[0.3], repeats=2)
    result = removal.summarize(plan, trials_of(plan.masks[:3], np.ones((3, 30), bool)))
    document = result.to_json()["numbers"]["memorized"]
    assert document["accuracy"] == {"mean": 1.0, "sd": None, "stderr": None, "n": 1}
    assert document["accuracy_random"]["mean"] is None


def test_thresholds_that_nothing_reaches(tmp_path: Path) -> None:
    halves = arrays()["train_correct"] | (np.arange(200) % 2 == 0)[:, None]  # the memorized are right half the time
    run = make_run(tmp_path, train_correct=halves)
    with pytest.warns(MemfluenceWarning, match="at 0.9 or above, so there is nothing to remove"):
        plan = removal.plan(run, thresholds=[0.3, 0.9], repeats=2)
    assert plan.settings["thresholds"] == [0.3]
    with pytest.raises(InputError, match=r"No example of .* has a memorization of 0.8 or more"):
        removal.plan(run, thresholds=[0.8, 0.9], mem=0.9)


def test_a_class_that_removal_empties_is_said(tmp_path: Path) -> None:
    labels = np.array([2 if k in MEMORIZED else k % 2 for k in range(N_TRAIN)])
    with pytest.warns(MemfluenceWarning, match=r"1 class\(es\) \(2\) have no example left"):
        plan = removal.plan(make_run(tmp_path / "three", train_labels=labels), thresholds=[0.3], repeats=2)
    assert plan.settings["emptied_classes"] == {"0.3": ["2"]}
    lone = np.array([int(k not in MEMORIZED) for k in range(N_TRAIN)])
    with pytest.raises(InputError, match=r"1 class\(es\) .* would be left, and a classifier needs two"):
        removal.plan(make_run(tmp_path / "two", train_labels=lone), thresholds=[0.3], repeats=2)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 12 trial"):
        removal.plan(make_run(tmp_path / "few", trials=12))
    run = make_run(tmp_path)
    with pytest.raises(InputError, match="`repeats`"):
        removal.plan(run, repeats=1)
    with pytest.raises(InputError, match="threshold of memorization"):
        removal.plan(run, thresholds=[0.0])
