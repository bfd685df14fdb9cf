"""`longtail`: what the theory says of it holds."""

import numpy as np
import pytest

from memfluence.datasets import load
from memfluence.errors import DatasetError


def test_content():
    dataset = load("longtail")
    assert (dataset.n_train, dataset.n_test, dataset.n_classes) == (1000, 1000, 10)
    assert dataset.x_train.dtype == np.float32
    assert dataset.x_train.shape == (1000, 32)
    assert not dataset.attributes["train_flipped"].any()
    class_of = dataset.attributes["subpopulation_class"]
    assert np.array_equal(class_of[dataset.attributes["train_subpopulation"]], dataset.y_train)
    assert np.array_equal(class_of[dataset.attributes["test_subpopulation"]], dataset.y_test)
    assert np.bincount(class_of).tolist() == [50] * 10


def test_the_same_for_ever():
    assert load("longtail?n_train=60&n_test=200&flip=0.1&seed=3").fingerprint == "0d0e8b0534bf725b54b5143e65538617"


def test_frequencies_are_zipf():
    dataset = load("longtail", n_train=20000, n_test=1, dimension=1, subpopulations=50, exponent=1.5)
    counts = np.bincount(dataset.attributes["train_subpopulation"], minlength=50)
    frequency = np.arange(1, 51) ** -1.5
    frequency /= frequency.sum()
    assert np.allclose(dataset.attributes["subpopulation_frequency"], frequency)
    assert (np.abs(counts / 20000 - frequency) < 5 * np.sqrt(frequency / 20000)).all()


def test_only_seen_subpopulations_can_be_predicted():
    from sklearn.neighbors import KNeighborsClassifier

    dataset = load("longtail")
    model = KNeighborsClassifier(1).fit(dataset.x_train, dataset.y_train)
    correct = model.predict(dataset.x_test) == dataset.y_test
    seen = np.isin(dataset.attributes["test_subpopulation"], dataset.attributes["train_subpopulation"])
    assert 0.05 < (~seen).mean() < 0.2
    assert correct[seen].mean() > 0.99
    assert correct[~seen].mean() < 0.25


def test_noise_is_standard():
    dataset = load("longtail?n_train=2000&n_test=1&n_classes=2&subpopulations=2&dimension=50&spread=2&exponent=0")
    member = dataset.attributes["train_subpopulation"]
    noise = np.concatenate([dataset.x_train[member == k] - dataset.x_train[member == k].mean(axis=0) for k in (0, 1)])
    assert abs(noise.std() - 2) < 0.02
    assert abs((np.abs(noise) < 2).mean() - 0.683) < 0.01
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.08


def test_flips():
    clean, noisy = load("longtail"), load("longtail?flip=0.1")
    flipped = noisy.attributes["train_flipped"]
    assert flipped.sum() == 100
    assert np.array_equal(clean.y_train != noisy.y_train, flipped)
    assert np.array_equal(clean.y_test, noisy.y_test)
    assert np.array_equal(clean.x_train, noisy.x_train)
    more = load("longtail?flip=0.2")
    assert (more.attributes["train_flipped"] >= flipped).all()
    assert np.array_equal(more.y_train[flipped], noisy.y_train[flipped])
    everything = load("longtail?flip=1")
    assert (everything.y_train != clean.y_train).all()


def test_more_examples_extend_the_earlier_ones():
    small, large = load("longtail?n_train=60&n_test=30"), load("longtail?n_train=90&n_test=40")
    assert np.array_equal(small.x_train, large.x_train[:60])
    assert np.array_equal(small.y_train, large.y_train[:60])
    assert np.array_equal(small.x_test, large.x_test[:30])


def test_seeds_give_different_worlds():
    assert load("longtail?seed=1").fingerprint != load("longtail?seed=2").fingerprint


@pytest.mark.parametrize(
    "option",
    [
        "n_train=1",
        "n_test=0",
        "n_classes=1",
        "subpopulations=9",
        "exponent=-1",
        "exponent=inf",
        "dimension=0",
        "spread=-0.1",
        "spread=nan",
        "flip=1.1",
        "seed=-1",
    ],
)
def test_options_out_of_range(option):
    with pytest.raises(DatasetError, match=f"the option '{option.partition('=')[0]}' must be between"):
        load(f"longtail?{option}")
