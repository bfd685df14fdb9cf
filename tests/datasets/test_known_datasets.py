"""Datasets are recognised by what they hold; others are described by their size and name."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memfluence as mf
from memfluence.datasets import Dataset, from_arrays, known
from memfluence.datasets.known import COMPARED, LABELS, Data, content, data_of, labels_digest, title_of


def info_of(data: Dataset, **changes: Any) -> dict[str, Any]:
    """What run.json says of a dataset."""
    said = {"name": data.name, "fingerprint": data.fingerprint, "n_train": data.n_train, "n_test": data.n_test}
    return said | {"classes": list(data.classes), "class_names": list(data.class_names)} | changes


def recognised(data: Dataset, **changes: Any) -> Data:
    return data_of(info_of(data, **changes), (data.y_train, data.y_test), np.arange(data.n_test), data)


DIGITS = mf.datasets.load("digits")


def test_content_is_the_same_in_any_order_and_type() -> None:
    shuffled = np.random.default_rng(0).permutation(DIGITS.n_train)
    order = replace(DIGITS, x_train=DIGITS.x_train[shuffled], y_train=DIGITS.y_train[shuffled])
    floats = replace(DIGITS, x_train=DIGITS.x_train / 16, x_test=DIGITS.x_test / 16, value_range=(0.0, 1.0))
    channels = replace(DIGITS, x_train=DIGITS.x_train[:, None], x_test=DIGITS.x_test[:, None])
    for other in (order, floats, channels):
        assert content(other) == content(DIGITS)
        assert recognised(other, fingerprint="another") == Data("digits", "digits", COMPARED)


def test_another_label_another_image_or_a_swap_of_labels_is_noticed() -> None:
    labels = DIGITS.y_train.copy()
    labels[[0, 1]] = labels[[1, 0]]
    assert labels[0] != labels[1]
    images = DIGITS.x_train.copy()
    images[5, 0, 0] ^= 1
    for other in (replace(DIGITS, y_train=labels), replace(DIGITS, x_train=images)):
        assert content(other) != content(DIGITS)
        assert recognised(other, fingerprint="another").how is None


def test_a_run_without_its_data_is_known_by_its_fingerprint() -> None:
    labels = DIGITS.y_train, DIGITS.y_test
    assert data_of(info_of(DIGITS, name="npz:mnist.npz"), labels, np.arange(len(labels[1]))).title == "digits"
    other = info_of(DIGITS, fingerprint="another")  # of trials that were made elsewhere, say
    assert data_of(other, labels, np.arange(1197)) == Data("digits", "data with the labels of digits", LABELS)
    assert data_of(other, (labels[0], labels[1][::-1]), np.arange(1197)).how is None


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("npz:/home/me/mnist.npz", "a file of 1,500 images named mnist.npz"),
        ("folder:/data/cifar100?size=32", "a folder of 1,500 images named cifar100"),
        ("mnist:/data/kmnist", "a folder of 1,500 images named kmnist"),
        ("hf:me/imagenet", "a dataset of 1,500 images named imagenet"),
        ("arrays", "a dataset of 1,500 images"),
    ],
)
def test_a_name_makes_no_dataset_known(name: str, phrase: str) -> None:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (1500, 28, 28), np.uint8), np.arange(1500) % 10
    data = from_arrays(images[:1200], labels[:1200], images[1200:], labels[1200:], name=name)
    assert recognised(data) == Data(
        data_of(info_of(data), (data.y_train, data.y_test), np.arange(data.n_test)).title, phrase, None
    )
    without = data_of(info_of(data), (data.y_train, data.y_test), np.arange(data.n_test))
    assert without.phrase == phrase.replace("images", "examples") + " (not at hand)"


def test_what_is_only_called_so_is_not_known() -> None:
    data = replace(DIGITS, name="npz:MNIST", y_train=DIGITS.y_train[::-1])
    assert recognised(data, fingerprint="another").title == "MNIST"
    assert not recognised(data, fingerprint="another").is_known_as("MNIST")
    assert recognised(DIGITS).is_known_as("digits")


def test_cifar_10_is_known_by_its_classes_and_says_so() -> None:
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    info = {"name": "cifar10:x", "fingerprint": "", "n_train": 50_000, "n_test": 10_000, "class_names": names}
    labels = np.arange(50_000) % 10, np.arange(10_000) % 10
    found = data_of(info | {"classes": list(range(10))}, labels, np.arange(len(labels[1])))
    assert (found.title, found.how) == ("CIFAR-10", "by its classes and their sizes; images were not compared")
    uneven = np.where(np.arange(50_000) == 0, 1, labels[0])
    assert data_of(info | {"classes": list(range(10))}, (uneven, labels[1]), np.arange(10_000)).how is None


def imagenet() -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Labels and names of files as ImageNet's, as far as they are looked at."""
    wanted = sorted({"n01440764", *known._VALIDATION.values(), "n15075141"})
    others = [f"n02{k:06}" for k in range(10, 10 + 1000 - len(wanted))]
    classes = sorted({*wanted, *others})
    assert len(classes) == 1000
    assert (classes[0], classes[-1]) == ("n01440764", "n15075141")
    sizes = np.full(1000, 1300)
    sizes[0], left = 732, 1000 * 1300 - 568 - 1_281_167
    sizes[1 : 1 + left // 300] -= 300
    sizes[500] -= left % 300
    y_test = np.repeat(np.arange(1000), 50)
    stems = [f"ILSVRC2012_val_{k:08}" for k in range(10, 10 + 50_000)]
    for stem, wnid in known._VALIDATION.items():
        stems[50 * classes.index(wnid)] = stem
    ids = np.array([f"val/{classes[code]}/{stem}.JPEG" for code, stem in zip(y_test, stems)])
    info = {"name": "imagenet:x", "fingerprint": "", "n_train": 1_281_167, "n_test": 50_000, "classes": classes}
    return info | {"class_names": classes}, np.repeat(np.arange(1000), sizes), y_test, ids


def test_imagenet_is_known_by_its_files_and_says_that_no_picture_was_looked_at() -> None:
    info, y_train, y_test, ids = imagenet()
    found = data_of(info, (y_train, y_test), ids)
    assert found.title == "ImageNet"
    assert found.how is not None
    assert found.how.endswith("pictures were not compared")
    swapped = ids.copy()
    first = int(np.flatnonzero(np.char.find(ids, "val_00000001") >= 0)[0])
    swapped[[first, (first + 50) % 50_000]] = swapped[[(first + 50) % 50_000, first]]
    assert data_of(info, (y_train, y_test), swapped).phrase == "a folder of 1,331,167 examples named x (not at hand)"
    assert data_of(info, (y_train[:-1], y_test), ids).how is None
    assert data_of(info, (y_train, y_test), np.arange(50_000)).how is None


def test_digests_of_the_real_data() -> None:
    """Of MNIST and CIFAR-100 where the environment names a copy of each; the digits are always there."""
    found = {"digits": DIGITS}
    for title in ("MNIST", "CIFAR-100"):
        if path := os.environ.get(f"MEMFLUENCE_TEST_{title.replace('-', '')}"):
            found[title] = mf.datasets.load(f"npz:{Path(path)}")
    for title, data in found.items():
        assert (content(data), data.fingerprint, labels_digest((data.y_train, data.y_test))) == known._KNOWN[title]


def test_headings_name_a_known_dataset_whatever_its_file() -> None:
    known = {"name": "npz:downloads/cifar100.npz", "fingerprint": "e0ea2b2902672971aec74da6ff66bd7c"}
    assert title_of(known) == "CIFAR-100"
    assert title_of(known | {"fingerprint": "0" * 32}) == "cifar100.npz"
