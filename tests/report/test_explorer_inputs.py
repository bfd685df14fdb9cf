"""Inputs in the explorer: pictures of any size and mode in sheets, texts, tables, rows of numbers."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from explorer_files import data_folder, document, numbers
from PIL import Image
from scipy import sparse
from test_explorer_data import images
from tiny_run import N_TEST, N_TRAIN, make_run

from memfluence.datasets import from_arrays
from memfluence.report import write_report
from memfluence.report.explorer.inputs import letters_for, rows_as_json
from memfluence.report.explorer.scripts import script
from memfluence.report.explorer.sheets import Layout, chosen_layout, pictures, sheets
from memfluence.runs import Run


def report_of(directory: Path, x_train: Any, x_test: Any, **options: Any) -> Path:
    run = make_run(directory)
    train, test = (run.classes[codes] for codes in run.label_codes)
    return write_report(Run(run.store, from_arrays(x_train, train, x_test, test, **options)), directory / "out")


def tile(content: bytes, layout: Layout, position: int) -> np.ndarray:
    sheet = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    row, column = divmod(position, layout.across)
    step = layout.side + 2
    return sheet[row * step + 1 : (row + 1) * step - 1, column * step + 1 : (column + 1) * step - 1]


def test_tiles_are_the_pictures_in_order() -> None:
    given = images(53, 20, 20, 3)
    layout = chosen_layout(given, (0, 255), 53)
    assert layout == Layout(20, None)  # small ones are kept to the last bit
    order = np.random.default_rng(1).permutation(53)
    made = list(sheets(given, (0, 255), order, layout, lambda count: None))
    assert len(made) == -(-53 // layout.tiles)
    for place, index in enumerate(order):
        number, position = divmod(place, layout.tiles)
        assert np.array_equal(tile(made[number], layout, position), given[index])


def test_the_place_of_a_training_example_leads_to_its_picture(tmp_path: Path) -> None:
    given = images(N_TRAIN, 20, 20)
    page = report_of(tmp_path, given, images(N_TEST, 20, 20))
    sheet = document(page, "meta")["sheet"]
    layout = Layout(sheet["side"], None)
    place = numbers(document(page, "train")["place"])
    for index in (0, 17, 39):
        number, position = divmod(int(place[index]), sheet["across"] ** 2)
        content = (data_folder(page) / f"train-{number}.webp").read_bytes()
        assert np.array_equal(tile(content, layout, position)[..., 0], given[index])


def test_a_budget_that_is_too_small_makes_tiles_lossy_then_small() -> None:
    given = images(40, 60, 60, 3)
    layouts = [chosen_layout(given, (0, 255), 40, budget) for budget in (10**9, 250_000, 40_000, 1)]
    assert layouts[0].quality is None
    assert layouts[1].quality is not None
    assert layouts[2].side < 60
    assert layouts[3] == Layout(24, 60)


def test_large_pictures_are_reduced_and_tiny_ones_grow() -> None:
    assert chosen_layout(images(3, 300, 200, 3), (0, 255), 3).side == 160
    tiny = chosen_layout(images(3, 8, 8), (0, 255), 3)
    assert tiny.side == 48
    layout = Layout(64, 90)
    (made,) = sheets(images(1, 100, 50, 3), (0, 255), np.arange(1), layout, lambda count: None)
    picture = Image.open(io.BytesIO(made))
    assert picture.mode == "RGBA"  # clear beside a picture that is not square
    assert np.asarray(picture)[33, 2, 3] == 0


ODD = [
    Image.new("1", (5, 9), 1),
    Image.new("L", (40, 3), 80),
    Image.new("P", (7, 7), 3),
    Image.new("LA", (6, 8), (200, 90)),
    Image.new("RGBA", (30, 31), (10, 20, 30, 40)),
    Image.new("CMYK", (12, 10), (9, 8, 7, 6)),
    Image.new("I;16", (12, 10), 700),
    Image.new("F", (12, 10), 0.5),
    Image.new("YCbCr", (1, 1), (1, 2, 3)),
    np.zeros((3, 4), np.uint8),
    np.zeros((3, 4, 1), np.uint8),
    np.zeros((3, 5, 6), np.uint8),
    np.full((9, 4, 4), 77, np.uint8),
    np.full((9, 4, 2), 77, np.uint8),
    np.zeros((700, 2, 3), np.uint8),
    "a text among pictures",
    np.zeros(7),
]


def test_pictures_of_odd_sizes_and_modes() -> None:
    made = pictures(ODD, None, range(len(ODD)))
    assert [None if one is None else one.mode in ("RGB", "RGBA") for one in made] == [True] * 15 + [None] * 2
    layout = chosen_layout(ODD, None, len(ODD))
    assert layout.side == 160
    made_sheets = list(sheets(ODD, None, np.arange(len(ODD)), layout, lambda count: None))
    assert [Image.open(io.BytesIO(sheet)).size for sheet in made_sheets] == [(4 * 162, 4 * 162), (162, 162)]


def test_texts_keep_their_lines_and_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {number}\nwith lines " + "and more " * 1000 for number in range(N_TRAIN)]
    page = report_of(tmp_path, texts, texts[:N_TEST])
    meta, rows = document(page, "meta"), document(page, "train-inputs-0")["texts"]
    assert meta["inputs"] == "texts"
    assert [text.split("\n")[0] for text in rows] == [f"text {number}" for number in range(N_TRAIN)]
    assert max(len(text) for text in rows) == 5000
    monkeypatch.setattr("memfluence.report.explorer.inputs.BYTES_IN_ALL", 1000)
    page = report_of(tmp_path / "b", texts, texts[:N_TEST])
    assert max(len(text) for text in document(page, "test-inputs-0")["texts"]) == 160


@pytest.mark.parametrize(("letter", "bytes_each"), [("a", 1), ("字", 6), ("<", 6)])
def test_texts_of_a_large_dataset_stay_small_in_any_writing(letter: str, bytes_each: int) -> None:
    texts = [letter * 4000] * 100
    letters = letters_for(texts, 100, 60_000)
    assert letters == pytest.approx(1000 / bytes_each, rel=0.01)
    content = script("train-inputs-0", rows_as_json(texts, range(100), letters))
    assert len(content) / 100 * 60_000 < 62_000_000
    assert letters_for(texts, 100, 100) == 5000


def features(page: Path, index: int) -> dict[str, str]:
    rows = document(page, "train-inputs-0")
    return {rows["names"][name]: value for name, value in rows["features"][index]}


def test_first_features_of_a_table_with_their_names(tmp_path: Path) -> None:
    columns = ["age", "<i>height</i>", *(f"c{k}" for k in range(13))]
    table = pd.DataFrame(np.arange(15 * N_TRAIN).reshape(N_TRAIN, 15) / 8, columns=columns)
    page = report_of(tmp_path, table, table[:N_TEST])
    assert document(page, "meta")["inputs"] == "features"
    assert list(features(page, 2).items())[:2] == [("age", "3.75"), ("<i>height</i>", "3.875")]
    assert document(page, "train-inputs-0")["more"] == [3] * N_TRAIN


@pytest.mark.parametrize("as_inputs", [np.asarray, sparse.csr_matrix, sparse.csr_array, list])
def test_rows_of_numbers(tmp_path: Path, as_inputs: type) -> None:
    rows = np.zeros((N_TRAIN, 9))
    rows[:, 7] = np.arange(N_TRAIN) + 0.5
    page = report_of(tmp_path, as_inputs(rows), as_inputs(rows[:N_TEST]))
    assert features(page, 2)["feature 7"] == "2.5"
    assert len(features(page, 2)) == (1 if sparse.issparse(as_inputs(rows)) else 9)


def test_ids_are_kept_beside_pictures(tmp_path: Path) -> None:
    ids = [f"train/cat/{number}.png" for number in range(N_TRAIN)]
    page = report_of(tmp_path, images(N_TRAIN, 8, 8), images(N_TEST, 8, 8), train_ids=ids)
    assert document(page, "train-inputs-0") == {"ids": ids}
    assert document(page, "test-inputs-0") == {}
