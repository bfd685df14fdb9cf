"""Groups: equal to brute force over all subsets of few groups, with a learner that has no randomness."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import memfluence as mf
from memfluence.errors import InputError, RunMismatchError
from memfluence.findings import group_scores, group_trials
from memfluence.records import Kind, Trials
from memfluence.runs.values import group_influence_table

N_GROUPS, KEPT = 6, 4
RNG = np.random.default_rng(2)
GROUP = RNG.permutation(np.arange(30) % N_GROUPS)
GROUP[:4] = 0  # groups of several sizes
Y_TRAIN, Y_TEST = np.arange(30) % 3, np.arange(25) % 3
X_TRAIN, X_TEST = (RNG.normal(size=(len(y), 3)) + 1.2 * np.eye(3)[y] for y in (Y_TRAIN, Y_TEST))
DATA = (X_TRAIN, Y_TRAIN, X_TEST, Y_TEST)
SUBSETS = np.array([[g in kept for g in range(N_GROUPS)] for kept in itertools.combinations(range(N_GROUPS), KEPT)])


def brute_force():
    """Memorization (groups,), influence (groups, n_test) and gain of accuracy (groups,) over all subsets."""
    train_right, test_right = [], []
    for kept in SUBSETS:
        rows = kept[GROUP]
        model = KNeighborsClassifier(1).fit(X_TRAIN[rows], Y_TRAIN[rows])
        train_right.append(model.predict(X_TRAIN) == Y_TRAIN)
        test_right.append(model.predict(X_TEST) == Y_TEST)
    train_right, test_right = np.array(train_right, float), np.array(test_right, float)
    mem, infl = [], []
    for g in range(N_GROUPS):
        inside = SUBSETS[:, g]
        members = train_right[:, g == GROUP].mean(axis=1)
        mem.append(members[inside].mean() - members[~inside].mean())
        infl.append(test_right[inside].mean(axis=0) - test_right[~inside].mean(axis=0))
    return np.array(mem), np.array(infl), np.array(infl).mean(axis=1)


def test_all_subsets_once_give_the_values_exactly(tmp_path: Path) -> None:
    run = mf.run(
        DATA,
        learner=KNeighborsClassifier(1),
        design="explicit",
        masks=SUBSETS,
        groups=GROUP,
        out=tmp_path / "run",
        progress=False,
    )
    mem, infl, gain = brute_force()
    table = mf.open(tmp_path / "run").groups()
    assert table["group"].tolist() == [str(g) for g in range(N_GROUPS)]
    assert table["size"].tolist() == np.bincount(GROUP).tolist()
    np.testing.assert_allclose(table["memorization"], mem, atol=1e-12)
    np.testing.assert_allclose(table["test_accuracy_gain"], gain, atol=1e-12)
    np.testing.assert_allclose(run.group_influence().block(), infl, atol=1e-12)
    columns = group_influence_table(run)
    np.testing.assert_allclose(columns["influence"].reshape(N_GROUPS, -1), infl, atol=1e-12)
    assert np.abs(mem).max() > 0.2
    assert np.abs(infl).max() > 0.2


@pytest.mark.filterwarnings("ignore:.*trial.* failed:memfluence.errors.MemfluenceWarning")  # those that keep no group
@pytest.mark.parametrize(("kind", "design"), [("shapley", "uniform"), ("banzhaf", "bernoulli")])
def test_values_are_those_of_groups_by_enumeration(tmp_path: Path, kind: str, design: str) -> None:
    """Groups of 1 to 10 examples: weights by the number of examples in place of groups would be far off."""
    group = np.repeat(np.arange(7), [1, 1, 2, 3, 5, 8, 10])
    every = np.array(list(itertools.product([False, True], repeat=7)))
    models = [KNeighborsClassifier(1).fit(X_TRAIN[kept[group]], Y_TRAIN[kept[group]]) for kept in every[1:]]
    worth = np.array([1 / 3, *(float((model.predict(X_TEST) == Y_TEST).mean()) for model in models)])
    exact = np.zeros(7)
    for g in range(7):
        bit = 1 << (6 - g)  # in the number of a subset, as `product` counts
        without = [code for code in range(128) if not code & bit]
        if kind == "shapley":
            exact[g] = sum((worth[s | bit] - worth[s]) / 7 / math.comb(6, s.bit_count()) for s in without)
        else:  # of the subsets that can be trained on
            exact[g] = worth[every[:, g]].mean() - worth[without[1:]].mean()
    options = {} if kind == "shapley" else {"keep": 0.5}
    learner = KNeighborsClassifier(1)
    run = mf.run(
        DATA, learner=learner, design=design, groups=group, trials=1500, out=tmp_path, progress=False, **options
    )
    table = mf.values(run, kind)
    assert list(table)[:2] == ["group", "size"]
    assert table["size"].tolist() == [1, 1, 2, 3, 5, 8, 10]
    assert "group" in table.attrs["target"]
    assert (np.abs(table["value"] - exact) < 4 * table["stderr"]).all()
    assert table["stderr"].max() < 0.02 < exact.max() / 4


def test_random_subsets_agree_within_their_errors(tmp_path: Path) -> None:
    run = mf.run(
        DATA,
        learner=KNeighborsClassifier(1),
        keep=KEPT / N_GROUPS,
        design="fixed",
        groups=GROUP,
        trials=400,
        out=tmp_path / "run",
        progress=False,
    )
    mem, infl, gain = brute_force()
    found = run.find_groups()
    # An error is 0 where no two trials of an arm differ, and then the value is exact but for rounding.
    assert (np.abs(found.memorization.value - mem) < 4 * found.memorization.stderr + 1e-12).all()
    assert (np.abs(found.accuracy.value - gain) < 4 * found.accuracy.stderr + 1e-12).all()
    errors = run.group_influence().block_with_errors()
    assert np.abs((errors.value - infl) / errors.stderr).max() < 4.5
    example = run.influence(train=[int(np.flatnonzero(GROUP == 3)[0])])
    np.testing.assert_array_equal(example[0], errors.value[3])  # a member stands for its group


@pytest.mark.filterwarnings("ignore:.*trial.* failed:memfluence.errors.MemfluenceWarning")  # those that keep no group
def test_what_groups_add_is_against_models_without_them_unless_said_otherwise(tmp_path: Path) -> None:
    """Under the fixed design gains sum to 0 whatever groups are worth; the default compares m groups with m - 1."""
    rng = np.random.default_rng(0)
    classes, tests = np.arange(36) % N_GROUPS, np.arange(60) % N_GROUPS
    x_train, x_test = (rng.normal(size=(len(y), N_GROUPS)) + 2 * np.eye(N_GROUPS)[y] for y in (classes, tests))
    worth = {}
    for size in (KEPT - 1, KEPT):
        for kept in itertools.combinations(range(N_GROUPS), size):
            rows = np.isin(classes, kept)
            model = KNeighborsClassifier(1).fit(x_train[rows], classes[rows])
            worth[kept] = float((model.predict(x_test) == tests).mean())
    adds = [
        np.mean([worth[kept] for kept in worth if len(kept) == KEPT and g in kept])
        - np.mean([worth[kept] for kept in worth if len(kept) == KEPT - 1 and g not in kept])
        for g in range(N_GROUPS)
    ]
    data, options = (x_train, classes, x_test, tests), {"groups": "class", "keep": KEPT / N_GROUPS, "progress": False}
    options["learner"] = KNeighborsClassifier(1)
    usual = mf.run(data, trials=600, out=tmp_path / "usual", **options)
    found = usual.find_groups()
    assert usual.info.plan is not None
    assert usual.info.plan["design"] == "lemma"
    assert not found.relative
    assert (np.abs(found.accuracy.value - adds) < 4 * found.accuracy.stderr).all()
    assert sum(adds) > 0.3
    for design, relative in (("fixed", True), ("balanced:6", True), ("bernoulli", False)):
        some = mf.run(data, trials=200, design=design, out=tmp_path / design[:5], **options).find_groups()
        assert some.relative == relative
        if relative:
            assert abs(some.accuracy.value.sum()) < 0.01


def test_two_groups_have_no_smaller_subset(tmp_path: Path) -> None:
    run = mf.run(
        DATA, learner=KNeighborsClassifier(1), groups=GROUP % 2, trials=10, out=tmp_path / "run", progress=False
    )
    assert run.info.plan is not None
    assert run.info.plan["design"] == "fixed"
    assert run.find_groups().relative


def test_a_run_with_other_groups_is_another_run(tmp_path: Path) -> None:
    options = {"learner": KNeighborsClassifier(1), "keep": 0.5, "trials": 4, "out": tmp_path / "run", "progress": False}
    mf.run(DATA, groups=GROUP, **options)
    with pytest.raises(RunMismatchError, match="groups"):
        mf.run(DATA, groups=GROUP[::-1], **options)


def test_a_run_without_groups_says_so(tmp_path: Path) -> None:
    run = mf.run(DATA, learner=KNeighborsClassifier(1), trials=4, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="has no groups; make a run with `groups`"):
        run.groups()
    with pytest.raises(InputError, match="kept a part of a group"):
        group_trials(run.trials, GROUP)


def test_groups_that_change_nothing_have_a_gain_of_exactly_0() -> None:
    """Models with and without a group are right equally often, though not in each trial: no rounding is left of it."""
    kept_first = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
    right = np.array([4, 4, 7, 5, 5, 4, 4, 7])  # of 7 examples; 5 on average with the first group and without
    bits = np.arange(7) < right[:, None]
    columns = [
        np.packbits(one, axis=1, bitorder="little")
        for one in (np.repeat([kept_first, ~kept_first], 7, 0).T, np.tile(bits, 2), bits)
    ]
    trials = Trials(np.arange(8), np.zeros(8, np.int16), *columns, n_train=14, n_test=7)
    found = group_scores(trials, [Kind(None, None)], np.repeat([0, 1], 7), ["a", "b"])
    assert found.columns()["test_accuracy_gain"].tolist() == [0.0, 0.0]
    assert found.columns()["memorization"].tolist() == [0.0, 0.0]
    assert found.memorization.mean_in.tolist() == [5 / 7, 5 / 7]
