"""Groups: equal to brute force over all subsets of few groups, with a learner that has no randomness."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import memfluence as mf
from memfluence.errors import InputError, RunMismatchError
from memfluence.findings import group_trials

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
    columns = run.group_influence_columns()
    np.testing.assert_allclose(columns["influence"].reshape(N_GROUPS, -1), infl, atol=1e-12)
    assert np.abs(mem).max() > 0.2
    assert np.abs(infl).max() > 0.2


def test_random_subsets_agree_within_their_errors(tmp_path: Path) -> None:
    run = mf.run(
        DATA,
        learner=KNeighborsClassifier(1),
        keep=KEPT / N_GROUPS,
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


def test_a_run_with_other_groups_is_another_run(tmp_path: Path) -> None:
    options = {"learner": KNeighborsClassifier(1), "keep": 0.5, "trials": 4, "out": tmp_path / "run", "progress": False}
    mf.run(DATA, groups=GROUP, **options)
    with pytest.raises(RunMismatchError, match="groups"):
        mf.run(DATA, groups=GROUP[::-1], **options)


def test_a_run_without_groups_says_so(tmp_path: Path) -> None:
    run = mf.run(DATA, learner=KNeighborsClassifier(1), trials=4, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="has no groups; make a run with --groups"):
        run.groups()
    with pytest.raises(InputError, match="kept a part of a group"):
        group_trials(run.trials, GROUP)
