"""Train-test near-duplicates: a double loop finds the same pairs; planted copies are found and nothing else."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import memfluence as mf
from memfluence.errors import InputError
from memfluence.estimators import influence, memorization
from memfluence.findings import train_test_duplicates
from memfluence.records import Kind, Trials

BOTH = (Kind(0.6, None),)


def make_world(trials=60, n_train=30, n_test=25, seed=0):
    """Training example i carries test example i, more or less."""
    rng = np.random.default_rng(seed)
    mask = rng.random((trials, n_train)) < 0.6
    train_correct = rng.random((trials, n_train)) < np.where(mask, 0.95, 0.3)
    test_correct = rng.random((trials, n_test)) < np.where(mask[:, :n_test], 0.9, 0.3)
    packed = [np.packbits(bits, axis=1, bitorder="little") for bits in (mask, train_correct, test_correct)]
    labels = rng.integers(0, 3, n_train)
    trials_ = Trials(np.arange(trials), np.zeros(trials, np.int16), *packed, n_train, n_test)
    return trials_, labels, rng.permutation(labels)[:n_test], train_correct, test_correct


@pytest.mark.parametrize("same_class", [True, False])
def test_equals_a_double_loop(same_class):
    trials, train_labels, test_labels, train_correct, test_correct = make_world()
    memorized, estimates = memorization(trials, BOTH).value, influence(trials, BOTH).block_with_errors()
    expected = sorted(
        (-estimates.lower[i, j], i, j)
        for i in range(30)
        for j in range(25)
        if memorized[i] >= 0.25
        and estimates.value[i, j] >= 0.2
        and (train_labels[i] == test_labels[j] or not same_class)
    )
    found = train_test_duplicates(
        trials, BOTH, train_labels, test_labels, infl=0.2, same_class=same_class, permutations=0
    )
    assert list(zip(-found.lower, found.train_index, found.test_index)) == expected
    assert expected
    for k, (_, i, j) in enumerate(expected):
        assert found.influence[k] == estimates.value[i, j]
        assert found.stderr[k] == estimates.stderr[i, j]
        assert found.memorization[k] == memorized[i]
        assert (found.train_label[k], found.test_label[k]) == (train_labels[i], test_labels[j])
        assert found.same_outcome[k] == (train_correct[:, i] == test_correct[:, j]).mean()
    assert np.isnan(found.expected_by_chance)


def test_planted_copies_are_found_and_nothing_else(tmp_path):
    """Two well-separated classes; five odd training examples lie in the other class and are copied into test."""
    rng = np.random.default_rng(3)
    y_train, y_test = np.arange(80) % 2, np.arange(60) % 2
    x_train, x_test = (rng.normal(size=(len(y), 8)) + 10 * y[:, None] for y in (y_train, y_test))
    x_train[:5] = 6 * np.eye(5, 8) + 10 * (1 - y_train[:5, None])  # far from each other
    for k in range(5):
        x_test[10 + k], y_test[10 + k] = x_train[k], y_train[k]
    data = (x_train, y_train, x_test, y_test)
    run = mf.run(data, learner=KNeighborsClassifier(1), trials=60, out=tmp_path / "run", progress=False)
    table = run.duplicates()
    assert sorted(zip(table["train_index"], table["test_index"])) == [(k, 10 + k) for k in range(5)]
    assert (table["influence"] == 1).all()
    assert (table["same_outcome"] == 1).all()
    assert table.attrs["expected_by_chance"] == 0


def test_thresholds_are_checked():
    trials, train_labels, test_labels, *_ = make_world()
    with pytest.raises(InputError, match="`infl` threshold"):
        train_test_duplicates(trials, BOTH, train_labels, test_labels, infl=1.5)
