"""Examples by memorization: chosen by hand, by class, as pictures and as words."""

from pathlib import Path

import numpy as np
import pytest
from small_runs import MEMORIZED, N_TEST, N_TRAIN, make_run

from memfluence.datasets import from_arrays
from memfluence.errors import InputError, MemfluenceWarning
from memfluence.experiments import examples
from memfluence.experiments.doing import draw
from memfluence.experiments.examples import nearest
from memfluence.runs import Run


def test_an_example_serves_the_value_it_is_nearest_to() -> None:
    memorization = np.array([0.1, 0.5, 0.9, 0.0, 0.25, 0.1, np.nan, 0.75])
    groups = nearest(memorization, np.arange(8), 3)
    assert [group.tolist() for group in groups] == [[3, 0, 5], [1, 7], [2]]  # 0.25 to 0, 0.75 to 0.5; ties: lower index
    assert [group.tolist() for group in nearest(memorization, np.array([5, 6]), 3)] == [[5], [], []]
    assert [group.tolist() for group in nearest(memorization, np.array([6]), 3)] == [[], [], []]


def with_data(directory: Path, x_train: object, x_test: object) -> Run:
    run = make_run(directory)
    codes = run.label_codes
    return Run(run.store, from_arrays(x_train, codes[0], x_test, codes[1]))


def pictured(directory: Path) -> Run:
    pixels = np.random.default_rng(0).integers(0, 256, (N_TRAIN, 8, 8), dtype=np.uint8)
    return with_data(directory, pixels, pixels[:N_TEST])


def test_memorized_examples_are_around_1_and_the_others_around_0(tmp_path: Path) -> None:
    with pytest.warns(MemfluenceWarning, match="nobody with a memorization around 0.5"):
        result = examples.summarize(pictured(tmp_path), classes=[1, 0], count=3)
    table = result.table
    assert table["class"].drop_duplicates().tolist() == ["1", "0"]
    memorized = {row.index for row in table.itertuples(index=False) if row.around == 1}
    assert memorized == set(MEMORIZED)
    assert table[table["around"] == 0]["index"].tolist() == [7, 9, 11, 4, 6, 8]  # all equal: the lowest of each class
    assert set(result.pictures) == {f"train {index}" for index in table["index"]}
    assert len(draw(result).axes) == len(table)


def test_texts_and_tables_are_shown_in_words(tmp_path: Path) -> None:
    words = [f"text number {k} " + "and so on " * 40 for k in range(N_TRAIN)]
    with pytest.warns(MemfluenceWarning, match=r"around 0\.5"):
        result = examples.summarize(with_data(tmp_path / "a", words, words[:N_TEST]), count=2)
    assert result.table["input"].str.startswith("text number ").all()
    assert (result.table["input"].str.len() <= 160).all()
    assert not result.pictures
    assert any("text number" in text.get_text() for text in draw(result).texts)
    numbers = np.random.default_rng(0).normal(size=(N_TRAIN, 9))
    with pytest.warns(MemfluenceWarning, match=r"around 0\.5"):
        result = examples.summarize(with_data(tmp_path / "b", numbers, numbers[:N_TEST]), count=2)
    assert result.table["input"].str.endswith(" and 3 more").all()


def test_classes_that_fit_best_come_first(tmp_path: Path) -> None:
    """Class 1 has examples around all three values, class 0 around two."""
    run = pictured(tmp_path / "a")
    trials = np.arange(200)
    correct = np.ones((200, N_TRAIN), bool)
    mask = np.random.default_rng(5).random((200, N_TRAIN)) < 0.7
    correct[:, [0, 1]] = mask[:, [0, 1]]
    correct[:, 3] = mask[:, 3] | (trials % 2 == 0)
    made = make_run(tmp_path / "b", train_correct=correct, mask=mask)
    with pytest.warns(MemfluenceWarning, match="class '0' has nobody with a memorization around 0.5"):
        result = examples.summarize(Run(made.store, run.dataset()), count=1)
    assert result.numbers["classes"] == ["1", "0"]


def test_a_class_with_one_example(tmp_path: Path) -> None:
    labels = np.arange(N_TRAIN) % 2
    labels[7] = 2
    run = make_run(tmp_path, train_labels=labels)
    data = from_arrays(np.zeros((N_TRAIN, 3)), labels, np.zeros((N_TEST, 3)), np.arange(N_TEST) % 2)
    with pytest.warns(MemfluenceWarning, match=r"class '2' has nobody .* around 0.5 or 1, .* \(1 of its examples"):
        result = examples.summarize(Run(run.store, data), classes=["2"])
    assert result.table["index"].tolist() == [7]


def test_misuse(tmp_path: Path) -> None:
    run = pictured(tmp_path)
    with pytest.raises(InputError, match="No training example is of the class 'cat'; classes are called 0, 1"):
        examples.summarize(run, classes=["cat"])
    with pytest.raises(InputError, match="`count`"):
        examples.summarize(run, count=0)
    with pytest.raises(InputError, match="does not say where its data are"):
        examples.summarize(make_run(tmp_path / "b"))
