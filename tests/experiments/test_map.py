"""The figure of the long tail: which classes, which examples, and how many there are, as pictures and as words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import MEMORIZED, N_TEST, N_TRAIN, make_run

from memfluence.datasets import from_arrays
from memfluence.drawing import encoded, style
from memfluence.errors import InputError
from memfluence.experiments import map as map_
from memfluence.experiments.doing import draw
from memfluence.findings import tail_map
from memfluence.runs import Run


def with_data(directory: Path, x_train: object, x_test: object) -> Run:
    run = make_run(directory)
    codes = run.label_codes
    return Run(run.store, from_arrays(x_train, codes[0], x_test, codes[1]))


def test_rows_from_typical_to_memorized(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (N_TRAIN, 8, 8), dtype=np.uint8)
    run = with_data(tmp_path, pixels, pixels[:N_TEST])
    result = map_.summarize(run)
    found, scores = tail_map(run.estimate_memorization(), run.label_codes[0], 12), run.estimate_memorization()
    table = result.table
    assert sorted(table["index"]) == sorted(found.index)
    assert table["count"].sum() == N_TRAIN
    memorized = table[table["from"] >= 0.25]
    assert memorized["count"].sum() == len(MEMORIZED)
    assert (np.array(result.numbers["memorized"])[:-1] >= np.array(result.numbers["memorized"])[1:]).all()
    assert [sum(one) for one in result.numbers["histograms"]] == np.bincount(run.label_codes[0]).tolist()
    for row in table.itertuples():
        assert row[2] <= max(0.0, scores.value[row.index]) <= row.to
    assert set(result.pictures) == {f"train {index}" for index in table["index"]}
    figure = draw(result)
    assert len(figure.axes) == len(table) + len(result.numbers["classes"])  # a picture a cell, a histogram a row


def test_classes_that_are_asked_for(tmp_path: Path) -> None:
    pixels = np.zeros((N_TRAIN, 8, 8), np.uint8)
    run = with_data(tmp_path, pixels, pixels[:N_TEST])
    result = map_.summarize(run, classes=["1"], columns=4)
    assert result.numbers["classes"] == ["1"]
    assert set(result.table["class"]) == {"1"}
    assert len(result.numbers["histograms"][0]) == 5
    assert map_.summarize(run, rows=1).numbers["classes"] == map_.summarize(run).numbers["classes"][:1]
    with pytest.raises(InputError, match="No training example is of the class 'cat'"):
        map_.summarize(run, classes=["cat"])
    for wrong in ({"columns": 6}, {"columns": 0}, {"rows": 0}):
        with pytest.raises(InputError, match="multiple of 4"):
            map_.summarize(run, **wrong)


def test_texts_and_tables_are_shown_by_what_is_telling(tmp_path: Path) -> None:
    words = [f"text number {k} " + "and so on " * 40 for k in range(N_TRAIN)]
    result = map_.summarize(with_data(tmp_path / "a", words, words[:N_TEST]))
    assert (result.table["input"].str.len() < 80).all()
    assert result.settings["columns"] == 4
    numbers = np.random.default_rng(0).normal(size=(N_TRAIN, 9))
    run = make_run(tmp_path / "c")
    odd = int(tail_map(run.estimate_memorization(), run.label_codes[0], 4).index[-1])
    assert odd in MEMORIZED
    numbers[odd, 5] = 50.0
    result = map_.summarize(with_data(tmp_path / "b", numbers, numbers[:N_TEST]))
    said = {row.index: row.input for row in result.table.itertuples()}
    assert said[odd].startswith("feature 5 50")
    assert any("feature" in text.get_text() for text in draw(result).texts)


def test_money_in_texts_and_names_is_no_formula(tmp_path: Path) -> None:
    words = [f"win $100 or $\\frac of {k}" for k in range(N_TRAIN)]
    result = map_.summarize(with_data(tmp_path, words, words[:N_TEST]))
    with style():
        figure = draw(result)
        encoded(figure, ".png")  # which would read the formula
    assert any("$100 or $\\frac" in text.get_text().replace("\n", " ") for text in figure.texts)


def test_a_class_without_an_estimate_keeps_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((N_TRAIN, 8, 8), np.uint8)
    run = with_data(tmp_path, pixels, pixels[:N_TEST])
    scores, codes = run.estimate_memorization(), run.label_codes[0]
    nobody = np.where(codes == 0, np.nan, scores.value)
    monkeypatch.setattr(Run, "estimate_memorization", lambda self, keep: replace(scores, value=nobody))
    result = map_.summarize(run, classes=["0", "1"])
    rows = list(map_.say(result).rows)
    assert rows[0][:3] == ("0", "-", 0)
    assert [row[0] for row in rows] == ["0", "1"]
    assert sum(rows[1][2:]) <= (codes == 1).sum() == sum(result.numbers["histograms"][1])
    draw(result)
