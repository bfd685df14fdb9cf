"""The fingerprint: equal for equal content from different sources, different for any change."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from memfluence.datasets import from_arrays

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])
TEXTS = ["ab", "c", "d", "e f", "é", ""]


def fingerprint(x=IMAGES, y=LABELS, x_test=None, y_test=None, **options):
    x_test = x if x_test is None else x_test
    return from_arrays(x, y, x_test, LABELS if y_test is None else y_test, **options).fingerprint


def changed(array, position, value):
    copy = array.copy()
    copy[position] = value
    return copy


def test_the_format_is_pinned():
    # Runs already made are tied to their data by these digits: never change them.
    images = np.arange(96, dtype=np.uint8).reshape(6, 4, 4)
    assert fingerprint(images) == "7f5917439a99f2f47f27387add67634e"
    assert fingerprint(TEXTS, y_test=LABELS) == "788fbe21713497da99e52625da4c682b"


@pytest.mark.parametrize(
    "same",
    [
        np.asfortranarray(IMAGES),
        IMAGES.repeat(2, axis=0)[::2],
        IMAGES.tolist(),
    ],
)
def test_equal_images(same):
    same = np.asarray(same, dtype=np.uint8)
    assert fingerprint(same) == fingerprint()


def test_byte_order_does_not_count_and_type_does():
    numbers = RNG.normal(size=(6, 3))
    assert fingerprint(numbers.astype(">f8")) == fingerprint(numbers)
    assert fingerprint(numbers.astype(np.float32)) != fingerprint(numbers)


@pytest.mark.parametrize(
    "labels",
    [LABELS.tolist(), LABELS.astype(np.uint8), LABELS.astype(float), pd.Series(LABELS), pd.Categorical(LABELS)],
)
def test_labels_are_the_same_in_every_container(labels):
    assert fingerprint(y=labels) == fingerprint()


@pytest.mark.parametrize(
    "texts",
    [
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pd.Series(TEXTS, name="text", index=range(10, 16)),
        pd.Series(TEXTS, dtype=object),
        pd.Series(TEXTS, dtype="category"),
    ],
)
def test_text_is_the_same_in_every_container(texts):
    assert fingerprint(texts) == fingerprint(TEXTS)


def test_texts_do_not_run_together():
    assert fingerprint(["ab", "c", "d", "e", "f", "g"]) != fingerprint(["a", "bc", "d", "e", "f", "g"])


def test_any_change_changes_it():
    swapped = [1, 0, 2, 3, 4, 5]
    variants = [
        fingerprint(),
        fingerprint(changed(IMAGES, (5, 3, 3), IMAGES[5, 3, 3] ^ 1), x_test=IMAGES),
        fingerprint(x_test=changed(IMAGES, (0, 0, 0), IMAGES[0, 0, 0] ^ 1)),
        fingerprint(y=changed(LABELS, 0, 1)),
        fingerprint(y_test=changed(LABELS, 0, 1)),
        fingerprint(IMAGES[swapped], LABELS[swapped], x_test=IMAGES),
        fingerprint(y=LABELS + 1, y_test=LABELS + 1),
        fingerprint(y=LABELS.astype(str), y_test=LABELS.astype(str)),
        fingerprint(IMAGES.reshape(6, 2, 8)),
        fingerprint(IMAGES[:5], LABELS[:5], x_test=IMAGES),
        fingerprint(value_range=(0, 16)),  # learners scale by it
        fingerprint(class_names=["a", "b", "c", "d"]),  # a fourth class changes a network's last layer
    ]
    assert len(set(variants)) == len(variants)


def test_names_and_ids_do_not_count():
    assert fingerprint(name="other", class_names=["a", "b", "c"], train_ids=TEXTS) == fingerprint()


def test_tables():
    table = pd.DataFrame({"n": range(6), "s": TEXTS, "c": pd.Categorical(list("uvuvuv"))})
    assert fingerprint(table.set_index(np.arange(6) + 50)) == fingerprint(table)
    assert fingerprint(table.astype({"n": "Int64", "s": object, "c": object})) == fingerprint(table)
    variants = [
        table,
        table.rename(columns={"n": "m"}),
        table[["s", "n", "c"]],
        table.assign(n=[0, 1, 2, 3, 4, 6]),
        table.assign(s=[*TEXTS[:5], "!"]),
        table.assign(c=list("uvuvuu")),
    ]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)


def test_sparse_matrices():
    dense = np.diag([1.0, 2, 3, 4, 5, 6])
    digest = fingerprint(scipy.sparse.csr_matrix(dense))
    for kind in (scipy.sparse.csc_matrix, scipy.sparse.coo_matrix, scipy.sparse.csr_array, scipy.sparse.lil_matrix):
        assert fingerprint(kind(dense)) == digest
    explicit_zero = scipy.sparse.csr_matrix(dense)
    explicit_zero.data[0] = 0
    dense[0, 0] = 0
    assert fingerprint(explicit_zero) == fingerprint(scipy.sparse.csr_matrix(dense)) != digest


def test_objects_are_digested_by_value():
    rows = [{"a": 1, "b": [2.5, "x"]}] * 6
    assert fingerprint(rows) == fingerprint([{"b": [2.5, "x"], "a": 1}] * 6)
    assert fingerprint(rows) != fingerprint([{"a": 1, "b": [2.5, "y"]}] * 6)
    mixed = np.array([[1, "a"], [2, "b"]] * 3, dtype=object)
    assert fingerprint(mixed) == fingerprint(mixed.copy())
    assert fingerprint([np.float64(1.5)] * 5 + ["x"]) == fingerprint([1.5] * 5 + ["x"])
