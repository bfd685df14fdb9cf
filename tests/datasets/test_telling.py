"""What is telling about a text or a row: the words and features that a person would name."""

import numpy as np
import pandas as pd
from scipy import sparse

from memfluence.datasets import Dataset, from_arrays, telling
from memfluence.datasets.telling import LETTERS


def test_of_a_text_the_words_that_tell_classes_apart() -> None:
    filler = "the plot went on and on with many people in a town by the river and a car "
    good = [filler + f"a wonderful and moving film number {k} " + filler for k in range(20)]
    bad = [filler + f"an awful and boring film number {k} " + filler for k in range(20)]
    odd = filler + "an awful and boring film number 99 " + filler  # its label says good
    texts = [*good, odd, *bad]
    data = from_arrays(texts, ["good"] * 21 + ["bad"] * 20, texts[:2], ["good", "good"])
    said = telling(data, [0, 20, 30])
    assert "wonderful and moving" in said[0]
    assert "awful and boring" in said[1]  # speaks against its label
    assert "awful and boring" in said[2]
    assert all(one.startswith("…") and one.endswith("…") and len(one) <= LETTERS + 2 for one in said)


def test_short_blank_and_endless_texts() -> None:
    texts = ["a short one", "", "  \n ", "x" * 5000, "in 子 other 文 writing", "more words " * 50]
    data = from_arrays(texts, list("aabbab"), texts[:2], ["a", "b"])
    said = telling(data, range(6))
    assert said[:3] == ["a short one", "", ""]
    assert said[4] == texts[4]
    assert all(len(one) <= LETTERS + 2 for one in said)


def test_with_one_class_rare_words_tell() -> None:
    texts = ["all of these words are common here and there and everywhere around us today"] * 30
    texts[4] = texts[4].replace("around us today", "quixotic zephyrs dancing")
    codes = np.zeros(30, np.int64)
    said = telling(Dataset("texts", texts, texts[:1], codes, codes[:1], (0,), ("all",)), [4])
    assert "quixotic zephyrs" in said[0]


def test_of_a_row_the_features_that_are_unusual_in_its_class() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "flat": np.ones(80),
            "height": rng.normal(10, 1, 80),
            "weight": rng.normal(50, 5, 80),
            "colour": ["red"] * 78 + ["blue", "red"],
        }
    )
    table.loc[0, "height"], table.loc[1, "weight"] = 30.0, 1.0
    labels = np.arange(80) % 2
    table.loc[labels == 1, "height"] += 20  # usual there
    found = telling(from_arrays(table, labels, table[:2], labels[:2]), [0, 1, 78])
    assert [one[0][0] for one in found] == ["height", "weight", "colour"]
    assert found[0][0][2] > 10
    assert found[1][0][2] < -5
    assert found[2][0][1] == "blue"
    assert all(len(one) == 3 for one in found)


def test_rows_of_any_kind() -> None:
    labels = [0, 0, 1, 1]
    for rows in (
        np.arange(12.0).reshape(4, 3),
        sparse.csr_matrix(np.eye(4)),
        [{"a": 1, "b": None}, {"a": 2}, {"a": float("nan"), "c": "x"}, {}],
    ):
        found = telling(from_arrays(rows, labels, rows[:2], labels[:2]), range(4))
        assert len(found) == 4
        assert all(np.isfinite(far) for one in found for _, _, far in one)
