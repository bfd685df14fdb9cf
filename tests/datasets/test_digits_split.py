"""`digits`: a split that never changes."""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

from memfluence.datasets import load


def test_content():
    dataset = load("digits")
    assert (dataset.n_train, dataset.n_test, dataset.n_classes) == (600, 1197, 10)
    assert dataset.x_train.shape == (600, 8, 8)
    assert dataset.x_train.dtype == np.uint8
    assert dataset.value_range == (0, 16)
    assert dataset.notes == ()
    source = load_digits()
    for x, y, ids in (
        (dataset.x_train, dataset.y_train, dataset.train_ids),
        (dataset.x_test, dataset.y_test, dataset.test_ids),
    ):
        positions = np.array(ids, dtype=int)
        assert (np.diff(positions) > 0).all()
        assert np.array_equal(x, source.images[positions])
        assert np.array_equal(y, source.target[positions])
    assert sorted(map(int, [*dataset.train_ids, *dataset.test_ids])) == list(range(1797))


def test_stratified():
    dataset = load("digits")
    train, test = np.bincount(dataset.y_train), np.bincount(dataset.y_test)
    assert np.abs(train - 600 * (train + test) / 1797).max() < 1


def test_the_same_for_ever():
    # Every run on digits ever made is tied to these: a change here is a bug, never an update.
    dataset = load("digits")
    assert (
        hashlib.sha256(" ".join(map(str, dataset.train_ids)).encode()).hexdigest()[:32]
        == "27f5b95bd62ad5aa5b6bbce20affdd1a"
    )
    assert dataset.fingerprint == "e1de658bf75acb126f38049cf586050c"


def test_the_file_read_directly_is_what_scikit_learn_loads() -> None:
    from sklearn.datasets import load_digits as from_sklearn

    from memfluence.datasets.digits import _read

    images, labels = _read()
    assert (images == from_sklearn().images).all()
    assert (labels == from_sklearn().target).all()
