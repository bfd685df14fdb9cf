"""Consistency of halves and runs: against plain sets, chance against its closed form, one sentence for misuse."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom
from small_runs import dataset, make_run
from world_runs import N_TEST, world_run, written

import memfluence as mf
from memfluence.errors import InputError, MemfluenceWarning, RunMismatchError
from memfluence.estimators import influence, memorization
from memfluence.experiments import consistency
from memfluence.experiments.consistency import Side, by_chance, sides, trials_each
from memfluence.experiments.consistency import compared as compare_sides
from memfluence.experiments.doing import draw
from memfluence.findings.cross_fit import halves


def test_two_halves_equal_plain_sets(tmp_path: Path) -> None:
    run = world_run(tmp_path)
    result = consistency.summarize(run, splits=2, permutations=0)
    jaccard, again = {"same_class": [], "any_class": []}, []  # type: ignore[var-annotated]
    for number in range(2):
        drawn = halves(run.trials, 0, number)
        matrices = [influence(half, run.info.kinds).block() for half in drawn]
        may = [memorization(half, run.info.kinds).value >= 0.25 for half in drawn]
        same = run.label_codes[0][:, None] == run.label_codes[1]
        for kind, among in (("same_class", same), ("any_class", np.ones_like(same))):
            sets = [(matrix >= 0.15) & who[:, None] & among for matrix, who in zip(matrices, may)]
            jaccard[kind].append((sets[0] & sets[1]).sum() / (sets[0] | sets[1]).sum())
            if kind == "same_class":
                again += [(sets[0] & sets[1]).sum() / one.sum() for one in sets]
    line = result.numbers["lines"][0]
    for kind, values in jaccard.items():
        assert line[kind][0]["threshold"] == 0.15
        assert line[kind][0]["jaccard"]["mean"] == pytest.approx(np.mean(values), rel=1e-12)
        assert line[kind][0]["jaccard"]["sd"] == pytest.approx(np.std(values, ddof=1), rel=1e-12)
    assert line["same_class"][0]["found_again"]["mean"] == pytest.approx(np.mean(again))
    assert result.numbers["trials_each"] == 100
    accuracy = np.unpackbits(run.trials.test_correct, axis=1, bitorder="little")[:, :N_TEST].mean(axis=1)
    assert line["test_accuracy"]["mean"] == pytest.approx(accuracy.mean())


def test_thresholds_between_those_of_the_grid_are_taken_as_they_are(tmp_path: Path) -> None:
    run = world_run(tmp_path)
    result = consistency.summarize(run, mem=0.31, infl=0.155, splits=2, permutations=0, any_class=False)
    at = result.numbers["lines"][0]["same_class"][0]
    assert at["threshold"] == 0.155
    same = run.label_codes[0][:, None] == run.label_codes[1]
    counts = []
    for number in range(2):
        half = halves(run.trials, 0, number)[0]
        may = memorization(half, run.info.kinds).value >= 0.31
        counts.append(((influence(half, run.info.kinds).block() >= 0.155) & may[:, None] & same).sum())
    assert at["first"]["mean"] == np.mean(counts)


def test_all_sides_have_as_many_trials_and_share_none(tmp_path: Path) -> None:
    run, other = world_run(tmp_path / "a", 200), world_run(tmp_path / "b", 70, seed=2)
    assert trials_each(run) == 100
    assert trials_each(run, [other]) == 70
    seen = []
    for drawn in sides(run, [other], 60, splits=3):
        assert [len(side.arms.in_trials) for side in drawn] == [60, 60, 60]
        numbers = [side.arms.in_trials.numbers for side in drawn]
        assert not np.intersect1d(numbers[0], numbers[1]).size
        assert drawn[2].run is other
        seen.append(tuple(numbers[0].tolist()))
    assert len(set(seen)) == 3


def test_a_run_of_the_same_plan_is_compared_on_other_masks(tmp_path: Path) -> None:
    def learn(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        return lambda asked: np.full(len(asked), np.bincount(y).argmax())

    run, other, apart = (
        mf.run(dataset(), learner=learn, trials=trials, seed=seed, out=tmp_path / name, progress=False)
        for name, trials, seed in (("a", 60, 0), ("b", 50, 0), ("c", 50, 1))
    )
    each = trials_each(run, [other], splits=3)
    assert each == min(50 - (halves(run.trials, 0, number)[0].numbers < 50).sum() for number in range(3))
    assert trials_each(run, [apart], splits=3) == 30
    for first, second, third in sides(run, [other], each, splits=3):
        masks = {mask.tobytes() for mask in first.arms.in_trials.mask}
        assert len(third.arms.in_trials) == each
        for side in (second, third):
            assert not any(mask.tobytes() in masks for mask in side.arms.in_trials.mask)
    few = mf.run(dataset(), learner=learn, trials=30, out=tmp_path / "d", progress=False)
    with pytest.raises(InputError, match=r"of other subsets than half of .*better hundreds, with another `seed`"):
        consistency.summarize(run, few)


def test_chance_has_its_closed_form(tmp_path: Path) -> None:
    """200 trials, each example kept in half of them and each test example right in half: counts are hypergeometric.

    Two independent sets that hold each of N pairs with probability p have N p each, and a Jaccard index of p / (2 - p).
    """
    rng = np.random.default_rng(0)

    def half_of(n: int) -> np.ndarray:
        return rng.permuted(np.tile(np.arange(200) < 100, (n, 1)), axis=1).T  # (trials, n)

    labels = np.zeros(50, int), np.zeros(40, int)
    both = []
    for name in ("a", "b"):
        mask = half_of(50)
        run = written(tmp_path / name, mask, mask, half_of(40), *labels)
        chosen = run.influence_estimates().arms
        both.append(Side(run, chosen, np.ones(50)))
    found = by_chance(both[0], both[1], permutations=30, seed=0, mem=0.25, infl=0.1, any_class=False)
    k = int(np.searchsorted(found[0].same_class.thresholds, 0.1))
    p = float(hypergeom(200, 100, 100).sf(54))  # (2 X - 100) / 100 >= 0.1: X >= 55
    counts = np.array([one.same_class.first[k] for one in found])
    assert abs(counts.mean() - 2000 * p) < 4 * counts.std(ddof=1) / np.sqrt(30)
    indices = np.array([one.same_class.jaccard[k] for one in found])
    assert indices.std(ddof=1) < 0.02
    assert indices.mean() == pytest.approx(p / (2 - p), abs=4 * indices.std(ddof=1) / np.sqrt(30))


def test_real_pairs_agree_far_better_than_chance(tmp_path: Path) -> None:
    run = world_run(tmp_path, 400)
    result = consistency.summarize(run, splits=3, permutations=3)
    line, chance = result.numbers["lines"][0]["same_class"][0], result.numbers["by_chance"]["same_class"][0]
    assert line["jaccard"]["mean"] > 0.4
    assert chance["first"]["mean"] < line["first"]["mean"] / 2
    table = result.table
    assert set(table["compared"]) == {"run", "by chance, run"}
    assert (table[table["quantity"] == "memorization"]["same_class"].isna()).all()


def test_the_spread_over_splits_is_near_that_of_fresh_trials(tmp_path: Path) -> None:
    """Splits share their trials, so it may be less, but it is no different kind of number."""
    fresh, split = [], []
    for seed in range(16):
        run = world_run(tmp_path / str(seed), 400, seed=seed)
        found = [compare_sides(*pair, mem=0.25, infl=0.15, any_class=False) for pair in sides(run, [], 200, splits=4)]
        indices = [one.same_class.jaccard[10] for one in found]
        fresh.append(indices[0])
        split.append(np.var(indices, ddof=1))
    assert 0.5 < np.sqrt(np.mean(split)) / np.std(fresh, ddof=1) < 1.3


def test_memorized_examples_of_permuted_sides_are_kept_for_pairs_alone(tmp_path: Path) -> None:
    run = world_run(tmp_path, 200)
    drawn = next(iter(sides(run, [], 100, splits=2)))
    chance = by_chance(drawn[0], drawn[1], permutations=1, seed=0, mem=0.25, infl=0.15, any_class=False)[0]
    real = compare_sides(drawn[0], drawn[1], mem=0.25, infl=0.15, any_class=False)
    assert chance.memorization.first[5] < real.memorization.first[5]
    assert real.any_class is None


def test_other_runs_are_named_by_learner_or_directory(tmp_path: Path) -> None:
    run = world_run(tmp_path / "a", 120)
    other = world_run(tmp_path / "b", 80, seed=5)
    result = consistency.summarize(run, other, splits=2, permutations=1, any_class=False)
    names = [line["compared"] for line in result.numbers["lines"]]
    assert len(set(names)) == 2
    assert [line["halves"] for line in result.numbers["lines"]] == [True, False]
    assert "any_class" not in result.numbers["lines"][0]
    json.dumps(result.to_json(), allow_nan=False)
    assert len(draw(result).axes) == 4


def test_chance_is_that_of_the_pair_compared(tmp_path: Path) -> None:
    run, other = world_run(tmp_path / "a", 120), world_run(tmp_path / "b", 60, seed=5)
    result = consistency.summarize(run, other, splits=2, permutations=2, any_class=False)
    drawn = next(iter(sides(run, [other], 60, splits=2)))
    for line, side in zip(result.numbers["lines"], drawn[1:]):
        found = by_chance(drawn[0], side, permutations=2, seed=0, mem=0.25, infl=0.15, any_class=False)
        k = int(np.searchsorted(found[0].same_class.thresholds, 0.15))
        counts = [one.same_class.second[k] for one in found]
        assert line["by_chance"]["same_class"][0]["second"]["mean"] == np.mean(counts)
        assert f"by chance, {line['compared']}" in set(result.table["compared"])
    assert result.numbers["by_chance"] == result.numbers["lines"][0]["by_chance"]


def test_where_nothing_is_selected_there_is_no_index(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_correct=np.ones((200, 30), bool))
    result = consistency.summarize(run, splits=2, permutations=1)
    at = result.numbers["lines"][0]["same_class"][0]
    assert at["first"]["mean"] == 0
    assert np.isnan(at["jaccard"]["mean"])
    assert result.to_json()["numbers"]["lines"][0]["same_class"][0]["jaccard"]["mean"] is None
    assert len(draw(result).axes) == 4


def test_a_class_with_one_example_is_compared_like_any_other(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    labels[7] = 2
    run = make_run(tmp_path, train_labels=labels)
    assert consistency.summarize(run, splits=2, permutations=1).numbers["lines"][0]["same_class"][0]["first"]["n"] == 2


def test_the_same_labels_with_other_inputs_are_a_warning(tmp_path: Path) -> None:
    x_train, y_train, x_test, y_test = dataset()
    given = {"trials": 40, "progress": False, "settings": {"epochs": "1"}}
    run = mf.run((x_train, y_train, x_test, y_test), out=tmp_path / "a", **given)
    same = mf.run((x_train, y_train, x_test, y_test), out=tmp_path / "b", **given, seed=1)
    other = mf.run((x_train[::-1], y_train, x_test, y_test), out=tmp_path / "c", **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MemfluenceWarning)
        consistency.summarize(run, same, splits=2, permutations=0)
        mf.compare(run, same)
    for compared in (
        lambda: consistency.summarize(run, other, splits=2, permutations=0),
        lambda: mf.compare(run, other),
    ):
        with pytest.warns(MemfluenceWarning, match="have the same labels but other inputs"):
            compared()


def test_misuse(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a")
    with pytest.raises(InputError, match=r"has 30 trial\(s\), too few for two independent halves; run at least 40"):
        consistency.summarize(make_run(tmp_path / "b", 30))
    with pytest.raises(InputError, match=r"has 15 trial\(s\), too few for a comparison; run at least 20"):
        consistency.summarize(run, make_run(tmp_path / "c", 15))
    with pytest.raises(RunMismatchError, match="different data"):
        consistency.summarize(run, make_run(tmp_path / "d", train_labels=np.arange(40) // 20))
    with pytest.raises(InputError, match="`splits` parameter must be an integer >= 2"):
        consistency.summarize(run, splits=1)
    with pytest.raises(InputError, match="`infl` threshold"):
        consistency.summarize(run, infl=0)
    with pytest.raises(InputError, match="must be from 20 to 100"):
        consistency.summarize(run, trials=101)
    with pytest.raises(InputError, match="beyond the memory"):
        consistency.summarize(run, memory="1MB")
