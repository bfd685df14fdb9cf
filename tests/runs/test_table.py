"""Tables: the same bytes for the same values, cells that no spreadsheet runs, rows for JSON, DataFrames."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from memfluence.cli._terminal import as_json, show
from memfluence.runs import Table
from memfluence.runs.table import from_cell


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_tables_have_the_same_bytes_for_the_same_values(tmp_path: Path, ending: str) -> None:
    columns = {
        "index": np.arange(3),
        "label": np.array(["a", "b,c", 'd"e']),
        "value": np.array([0.1, np.nan, 1 / 3]),
    }
    for name in ("one", "two"):
        Table(columns).write(tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()
    if ending == "csv":
        import pandas as pd

        read = pd.read_csv(tmp_path / "one.csv")
        assert read.label.tolist() == ["a", "b,c", 'd"e']
        assert read.value.tolist()[::2] == [0.1, 1 / 3]
        assert np.isnan(read.value[1])
    elif ending == "parquet":
        assert pq.read_table(tmp_path / "one.parquet")["value"].to_pylist() == [0.1, None, 1 / 3]


FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(1;2)", "+a", "-a", "\t=1", "\r=1", "'=1", "-0.5", "it's =1", "'tis", ""]


def test_a_spreadsheet_runs_no_text_of_a_table(tmp_path: Path) -> None:
    columns = {"label": np.array(FORMULAS), "=B1": np.linspace(-0.1, 0, len(FORMULAS))}
    for ending in ("csv", "parquet"):
        Table(columns).write(tmp_path / f"table.{ending}")
    with (tmp_path / "table.csv").open(newline="") as file:
        header, *cells = csv.reader(file)
    assert header == ["label", "'=B1"]
    texts = [text for text, _ in cells]
    assert texts == [*(f"'{text}" for text in FORMULAS[:7]), *FORMULAS[7:]]
    assert [from_cell(text) for text in texts] == FORMULAS
    assert [float(number) for _, number in cells] == columns["=B1"].tolist()
    assert pq.read_table(tmp_path / "table.parquet")["label"].to_pylist() == FORMULAS


def test_rows_say_none_for_what_cannot_be_estimated() -> None:
    found = Table({"a": np.array([1, 2]), "b": np.array([np.nan, 0.5])}).rows()
    assert list(found) == [{"a": 1, "b": None}, {"a": 2, "b": 0.5}]
    assert list(Table({"a": np.empty(0)}).rows()) == list(Table({}).rows()) == []
    many = np.arange(25_000)  # more than are turned into Python's own values at a time
    assert [row["a"] for row in Table({"a": many}).rows()] == many.tolist()


def test_json_of_rows_that_come_one_by_one_is_that_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"a": np.array([1, 2]), "b": np.array([np.nan, 0.5]), "c": np.array(["ä", '"'])}
    document = {
        "summary": {"n": 2, "x": float("nan")},
        "rows": Table(columns).rows(),
        "none": Table({}).rows(),
        "list": [1, "z"],
    }
    as_json(document)
    expected = {"summary": {"n": 2, "x": None}, "rows": list(Table(columns).rows()), "none": [], "list": [1, "z"]}
    assert capsys.readouterr().out == json.dumps(expected, ensure_ascii=False) + "\n"


def test_a_table_is_a_frame_with_its_notes() -> None:
    table = Table({"index": np.arange(3), "value": np.array([0.5, np.nan, 1.0])}, {"expected_by_chance": 2.0})
    frame = table.frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert frame["value"].tolist()[::2] == [0.5, 1.0]
    assert frame.attrs == {"expected_by_chance": 2.0}
    last = table.take([2, 0])
    assert (len(last), last["index"].tolist(), last.notes) == (2, [2, 0], table.notes)
    assert len(Table({})) == 0


def test_people_see_chosen_columns_and_a_dash_for_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    run: Any = SimpleNamespace(classes=np.arange(2), class_names=("ant", "bee"))
    found = Table({"n": np.arange(2), "x": np.array([0.25, np.nan]), "label": np.array([1, 0])})
    show(run, found, {"x": "value", "n": "index", "label": "label"}, 2)
    assert capsys.readouterr().out.splitlines() == ["value  index  label", " 0.25      0    bee", "    -      1    ant"]
