"""`from_arrays` and `as_dataset`: every kind of input, every fault of the data."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from memfluence.datasets import Dataset, as_dataset, from_arrays
from memfluence.errors import DatasetError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 1])
TEXTS = ["a cat", "a dog", "one cat", "one dog"]
ROWS = np.array([2, 0])


def build(x_train=X, y_train=Y, x_test=X, y_test=Y, **options):
    return from_arrays(x_train, y_train, x_test, y_test, **options)


def fails(message: str, **parts):
    with pytest.raises(DatasetError, match=message) as caught:
        build(**parts)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


# What can be an input


@pytest.mark.parametrize(
    "inputs",
    [
        X,
        pd.DataFrame(X, columns=["a", "b", "c"], index=[9, 8, 7, 6]),
        pd.Series(TEXTS, index=list("wxyz")),
        scipy.sparse.csr_matrix(X),
        scipy.sparse.coo_matrix(X),
        scipy.sparse.csr_array(X),
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        [{"words": 2}, {"words": 3}, {"words": 4}, {"words": 5}],
        [np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(5)],
    ],
    ids=lambda inputs: type(inputs).__name__,
)
def test_rows_of_any_indexable_can_be_taken(inputs):
    dataset = build(x_train=inputs, x_test=inputs)
    taken = dataset.take_train(ROWS)
    assert (taken.shape[0] if hasattr(taken, "shape") else len(taken)) == 2
    assert dataset.take_train(ROWS[:1]) is not None
    assert len(dataset.fingerprint) == 32


def test_taken_rows_are_the_right_ones():
    assert build(x_train=TEXTS, x_test=TEXTS).take_train(ROWS) == ["one cat", "a cat"]
    assert np.array_equal(build().take_train(ROWS), X[ROWS])
    table = pd.DataFrame(X, index=[9, 8, 7, 6])
    assert np.array_equal(build(x_train=table, x_test=table).take_train(ROWS).to_numpy(), X[ROWS])
    sparse = scipy.sparse.coo_matrix(X)
    assert np.array_equal(build(x_train=sparse, x_test=sparse).take_train(ROWS).toarray(), X[ROWS])


def test_nested_lists_of_numbers_become_an_array():
    dataset = build(x_train=X.tolist(), x_test=X.tolist())
    assert isinstance(dataset.x_train, np.ndarray)
    assert dataset.x_train.shape == (4, 3)


def test_a_text_pipeline_trains_on_taken_rows():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    dataset = build(x_train=TEXTS, y_train=["cat", "dog"] * 2, x_test=["cat", "dog"], y_test=["cat", "dog"])
    rows = np.array([0, 1, 3])
    model = make_pipeline(CountVectorizer(), MultinomialNB()).fit(dataset.take_train(rows), dataset.y_train[rows])
    assert model.predict(dataset.x_test).tolist() == dataset.y_test.tolist()


def test_torch_tensors_are_inputs():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(X.copy())
    dataset = build(x_train=tensor, x_test=tensor, y_train=torch.from_numpy(Y))
    assert dataset.fingerprint == build().fingerprint
    tensor[2, 1] = float("nan")
    fails("train example 2 holds a NaN", x_train=tensor)


# Labels


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([3, 7, 3, 7], (3, 7)),
        (["b", "a", "b", "a"], ("a", "b")),
        (np.array([3, 7, 3, 7], dtype=np.uint8), (3, 7)),
        (np.array([3.0, 7.0, 3.0, 7.0]), (3, 7)),
        ([True, False, True, False], (0, 1)),
        (np.array(["b", "a", "b", "a"], dtype=object), ("a", "b")),
        ([np.int64(3), np.int64(7), 3, 7], (3, 7)),
        (np.array([[3], [7], [3], [7]]), (3, 7)),
        (pd.Series([3, 7, 3, 7], index=[5, 5, 5, 5]), (3, 7)),
        (pd.Series([3, 7, 3, 7], dtype="Int64"), (3, 7)),
        (pd.Series(["b", "a", "b", "a"]), ("a", "b")),
        (pd.Series(["b", "a", "b", "a"], dtype="category"), ("a", "b")),
        (pd.Categorical([3, 7, 3, 7]), (3, 7)),
        ([-1, 1, -1, 1], (-1, 1)),
    ],
)
def test_labels_of_every_kind(labels, classes):
    dataset = build(y_train=labels, y_test=labels)
    assert dataset.classes == classes
    assert all(type(label) in (int, str) for label in dataset.classes)
    assert dataset.y_train.dtype == np.int64
    expected = [label if isinstance(label, str) else int(label) for label in np.asarray(labels).ravel().tolist()]
    assert dataset.labels("train").tolist() == expected
    assert dataset.labels("test").tolist() == expected


def test_class_names_follow_integer_labels():
    dataset = build(class_names=["cat", "dog", "cow"])
    assert dataset.classes == (0, 1, 2)  # no example of a cow, yet label 1 is still a dog
    assert dataset.class_names == ("cat", "dog", "cow")
    assert build(y_train=["u", "v"] * 2, y_test=["u", "v"] * 2, class_names=["U", "V"]).class_names == ("U", "V")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, None, 1], "train label 2 is missing"),
        ([0, 1, float("nan"), 1], "train label 2 is missing"),
        (np.array([0, 1, np.nan, 1]), "train label 2 is missing"),
        (["a", "b", None, "b"], "train label 2 is missing"),
        (pd.Series(["a", "b", None, "b"]), "train label 2 is missing"),
        (pd.Series([0, 1, None, 1], dtype="Int64"), "train label 2 is missing"),
        (pd.Series(["a", "b", None, "b"], dtype="category"), "train label 2 is missing"),
        ([0, 1, "a", 1], "must be all integers or all strings; got 'a' \\(str\\) for example 2"),
        (np.array([b"a", b"b", b"a", b"b"]), "must be all integers or all strings"),
        (np.array(["2001-01-01"] * 4, dtype="datetime64[D]"), "must be all integers or all strings"),
        (np.eye(4, dtype=int), re.escape("flat array; got the shape (4, 4)")),
        ([[0, 1], [1, 0], [0, 1], [1, 0]], re.escape("flat array; got the shape (4, 2)")),
        ([0, 1, [2], 1], "must be all integers or all strings"),
        (np.array([2**64 - 1, 1, 1, 1], dtype=np.uint64), "beyond 64-bit integers"),
        ([2**70, 1, 1, 1], "64-bit integers"),
        (5, "flat array; got the shape"),
        ([1, 1, 1, 1], "all training labels are 1; a classifier needs at least two classes"),
        ([0, 1, 0], "train has 4 inputs but 3 labels"),
        (["a", "b", "a", "b"], "one split's labels are strings and the other's are integers"),
    ],
)
def test_faulty_labels(labels, message):
    fails(message, y_train=labels)


def test_a_class_that_train_lacks_is_noted():
    dataset = build(y_test=[0, 1, 2, 9])
    assert dataset.classes == (0, 1, 2, 9)
    assert dataset.notes == ("arrays: test has 2 class(es) that train lacks (2, 9); no model can get them right.",)
    assert build(y_test=[0, 1, 1, 1]).notes == ()


# Faulty inputs


def with_value(value, dtype=np.float64):
    array = X.astype(dtype)
    array[2, 1] = value
    return array


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (with_value(np.nan), "test example 2 holds a NaN"),
        (with_value(np.inf), "test example 2 holds a NaN, an infinity"),
        (with_value(None, object), "test example 2 holds a NaN"),
        (pd.DataFrame(with_value(np.nan)), "test example 2 holds"),
        (pd.DataFrame(with_value(-np.inf)), "test example 2 holds"),
        (scipy.sparse.csc_matrix(with_value(np.nan)), "test example 2 holds"),
        (with_value(np.nan).tolist(), "test example 2 holds"),
        (X[:, :2], re.escape("a training input has the shape (3,) but a test input (2,)")),
        (X[:3], "test has 3 inputs but 4 labels"),
        ("text", "must be an array, a table, a sparse matrix or a list, one entry per example; got str"),
        ((row for row in X), "got generator"),
        (np.float64(3), "got float64"),
    ],
)
def test_faulty_inputs(inputs, message):
    fails(message, x_test=inputs)


def test_missing_text_is_found():
    fails("train example 1 holds", x_train=["a", None, "b", "c"], x_test=TEXTS)
    fails("train example 1 holds", x_train=pd.Series(["a", None, "b", "c"]), x_test=TEXTS)


def test_tables_must_have_the_same_columns():
    ours, theirs = pd.DataFrame(X, columns=list("abc")), pd.DataFrame(X, columns=list("acb"))
    fails("train has the column 'b' where test has 'c'", x_train=ours, x_test=theirs)


@pytest.mark.parametrize("split", ["train", "test"])
def test_empty_split(split):
    fails(f"the {split} split is empty", **{f"x_{split}": X[:0], f"y_{split}": Y[:0]})
    fails(f"the {split} split is empty", **{f"x_{split}": [], f"y_{split}": []})


def test_faulty_companions():
    fails("3 class names for 2 classes", y_train=[5, 6, 5, 6], y_test=[5, 6, 5, 6], class_names=["a", "b", "c"])
    fails("value_range must be", value_range=(1, 1))
    fails("train_ids has 3 entries for 4 examples", train_ids=["a", "b", "c"])
    fails("test_group has 1 entries", attributes={"test_group": np.zeros(1)})


# The value range, and the three ways to give data


def test_bytes_that_are_images_have_a_known_range():
    images = np.zeros((4, 5, 5), dtype=np.uint8)
    assert build(x_train=images, x_test=images).value_range == (0, 255)
    assert build(x_train=images, x_test=images, value_range=(0, 16)).value_range == (0, 16)
    assert build(x_train=images.reshape(4, 25), x_test=images.reshape(4, 25)).value_range is None
    assert build().value_range is None


def test_as_dataset():
    dataset = build()
    assert as_dataset(dataset) is dataset
    assert as_dataset((X, Y, X, Y)).fingerprint == dataset.fingerprint
    assert as_dataset("longtail?n_train=30&n_test=5").n_train == 30
    assert repr(dataset) == "Dataset('arrays': 4 train, 4 test, 2 classes)"
    assert isinstance(as_dataset([X, Y, X, Y]), Dataset)


@pytest.mark.parametrize(("data", "got"), [((X, Y), "a tuple of 2"), (X, "ndarray"), (None, "NoneType")])
def test_as_dataset_of_something_else(data, got):
    with pytest.raises(DatasetError, match=f"got {got}"):
        as_dataset(data)


def test_the_order_of_train_test_split_is_pointed_out():
    with pytest.raises(DatasetError, match="the order is x_train, y_train, x_test, y_test"):
        as_dataset((X, X, Y, Y))
