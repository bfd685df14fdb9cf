"""Targets that are no classes: numbers, several labels, sequences of labels, or none; and weights of examples."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memfluence.datasets import Dataset, as_numbers, from_arrays, load
from memfluence.errors import DatasetError

X = np.arange(8.0).reshape(4, 2)
TAGS = [["det", "noun"], ["noun"], ["det", "adj", "noun"], ["verb"]]


def build(y: Any, y_test: Any = None, **options: Any) -> Dataset:
    return from_arrays(X, y, X, y if y_test is None else y_test, **options)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        ([0.5, 1, 2, 3], "numbers"),
        (np.float32([0.5, 1, 2, 3])[:, None], "numbers"),
        (pd.Series([0.5, 1, 2, 3], dtype="Float64"), "numbers"),
        (np.random.default_rng(0).normal(size=(4, 3)), "numbers"),
        ([[0.5, 1.0], [2.0, 3.0], [1.5, 1.0], [0.0, 1.0]], "numbers"),
        (np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]), "labels"),
        (pd.DataFrame({"a": [1, 0, 1, 0], "b": [True, False, True, True]}), "labels"),
        ([[1, 1], [0, 0], [1, 0], [0, 1]], "labels"),
        (TAGS, "sequences"),
        (pd.Series(TAGS), "sequences"),
        ([["a", "b"], ["b", "a"], ["a", "a"], ["b", "b"]], "sequences"),
        ([1.0, 2.0, 1.0, 2.0], "classes"),
        ([0, 1, 0, 1], "classes"),
        (["a", "b", "a", "b"], "classes"),
    ],
)
def test_the_form_of_the_targets_says_the_task(y: Any, task: str) -> None:
    data = build(y)
    assert data.task == task
    if task != "classes":
        assert (data.classes, data.y_train.tolist(), data.y_test.tolist()) == (("all",), [0] * 4, [0] * 4)
        given = y.to_numpy().tolist() if hasattr(y, "to_numpy") else np.squeeze(y).tolist() if task == "numbers" else y
        for split in ("train", "test"):
            targets = data.labels(split).tolist()  # type: ignore[arg-type]
            assert targets == (given.tolist() if isinstance(given, np.ndarray) else given)


def test_no_targets_at_all() -> None:
    data = from_arrays(["one text", "another"], None, ["a third"], None)
    assert (data.task, data.targets, data.n_train, data.n_test) == ("any", None, 2, 1)
    with pytest.raises(DatasetError, match="need labels of both splits"):
        from_arrays(X, [0, 1, 0, 1], X, None)


def test_the_fingerprint_covers_targets_and_weights() -> None:
    y = np.array([0.5, 1, 2, 3])
    weighted = [build(y, attributes={"train_sample_weight": np.array([1, 1, 1, last])}) for last in (1, 2)]
    prints = {build(y).fingerprint, build(y + 1e-9).fingerprint, *(one.fingerprint for one in weighted)}
    assert len(prints) == 4
    assert build(y).fingerprint == build(y.tolist()).fingerprint
    assert build(TAGS).fingerprint != build([TAGS[1], TAGS[0], *TAGS[2:]]).fingerprint


def test_the_fingerprint_of_classes_is_what_it_was() -> None:
    assert build([0, 1, 0, 1]).fingerprint == "0a6cd8c90b886dc80f8f51a275d4ea7c"


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (np.ones(3), "3 entries for 4 examples"),
        (np.ones((4, 1)), "one for each training example; got float64 of the shape"),
        (["a", "b", "c", "d"], "must be numbers"),
        ([1, 1, np.nan, 1], "train_sample_weight 2 is nan"),
        ([1, -1, 1, 1], "train_sample_weight 1 is -1"),
        (pd.Series([1, 2, None, 4], dtype="Float64"), "train_sample_weight 2 is nan"),
        ([1, 2, None, 4], "must be numbers"),
        (pd.Series(["a", "b", "c", "d"]), "must be numbers"),
        (pd.Series([1, 2, 3, 4], index=[3, 2, 1, 0]), "another index"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Any, why: str) -> None:
    with pytest.raises(DatasetError, match=why):
        from_arrays(pd.DataFrame(X), [0.5, 1, 2, 3], X, [0.5, 1, 2, 3], attributes={"train_sample_weight": weights})


def test_whole_numbers_become_the_targets_of_a_regression() -> None:
    data = as_numbers(build([3, 1, 2, 3]))
    assert (data.task, data.labels("train").tolist(), data.classes) == ("numbers", [3.0, 1.0, 2.0, 3.0], ("all",))
    assert data.fingerprint == build([3, 1, 2, 3], task="numbers").fingerprint
    texts = as_numbers(build(["75.0", "-1.5", "75.0", "1e2"]))
    assert texts.labels("train").tolist() == [75, -1.5, 75, 100]
    several = as_numbers(build([[1, 1], [0, 0], [1, 0], [0, 1]]))
    assert (several.task, several.labels("test").tolist()) == ("numbers", [[1, 1], [0, 0], [1, 0], [0, 1]])
    with pytest.raises(DatasetError, match="a regressor needs numbers, and a label is 'a'"):
        as_numbers(build(["a", "b", "a", "b"]))


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0.5, 1, np.nan, 3], {"task": "numbers"}, "train target 2 is missing"),
        ([0.5, 1, np.nan, 3], {}, "train label 2 is missing"),
        (["a", "b", "a", "b"], {"task": "numbers"}, "must be numbers, one for each example"),
        (np.eye(4), {}, "take the argmax of one-hot labels"),
        (np.full((4, 2), 2), {"task": "labels"}, "train target 0 is not all 0 and 1"),
        ([["a"], [], ["b"], ["a"]], {}, "train target 1 must be a list of labels"),
        ([0.5, 1, 2], {}, "train has 4 inputs but 3 labels"),
        ([0.5, 1, 2, 3], {"task": "ranking"}, "task must be one of classes, numbers, labels, sequences, any"),
    ],
)
def test_faulty_targets(y: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        build(y, **options)


def test_a_csv_column_of_numbers_is_a_regression(tmp_path: Path) -> None:
    table = pd.DataFrame({"rooms": range(10), "price": np.arange(10) + 0.5, "year": range(2000, 2010), "w": [2.0] * 10})
    table.to_csv(file := tmp_path / "homes.csv", index=False)
    data = load(f"csv:{file}?label=price&weight=w&test=0.3")
    assert data.task == "numbers"
    assert data.labels("train").tolist() == table.price[data.train_ids].tolist()
    assert list(data.x_train.columns) == ["rooms", "year"]
    assert data.sample_weight is not None
    assert data.sample_weight.tolist() == [2.0] * 7
    assert load(data.name).fingerprint == data.fingerprint
    assert load(f"csv:{file}?label=year").task == "classes"
    assert load(f"csv:{file}?label=year&task=numbers").labels("test").dtype == np.float64
    assert load(f"csv:{file}?label=price&task=classes").task == "classes"
    with pytest.raises(DatasetError, match="the option 'task' must be"):
        load(f"csv:{file}?label=price&task=labels")
