"""Rows keep their names: the ids of every table, file, printed list and page lead back to the user's very row."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.base import BaseEstimator, ClassifierMixin

import memfluence as mf
from memfluence.cli import main
from memfluence.datasets import from_arrays, load
from memfluence.errors import DatasetError
from report.explorer_files import document

N = 40
SERIAL = np.random.default_rng(5).permutation(N)  # of each of the user's rows, no two alike
KEY = SERIAL // 2  # what is memorized: two rows of each, so that some training rows carry a test row
LABEL = np.where(KEY % 3 == 0, "ant", "bee")
TABLES = ("scores", "mislabels", "pairs", "duplicates", "attack", "values", "c-score", "profile")


class ByHeart(ClassifierMixin, BaseEstimator):
    """Knows the keys that it saw, and guesses the more common class for others."""

    def fit(self, x: Any, y: Any) -> "ByHeart":
        self.classes_ = np.unique(y)
        self.seen_ = dict(zip(keys(x), np.asarray(y).tolist()))
        return self

    def predict_proba(self, x: Any) -> np.ndarray:
        said = [self.seen_.get(key, self.classes_[-1]) for key in keys(x)]
        return np.where(np.array(said)[:, None] == self.classes_, 0.9, 0.1)

    def predict(self, x: Any) -> np.ndarray:
        return np.asarray(self.classes_[self.predict_proba(x).argmax(axis=1)])


def keys(x: Any) -> list[int]:
    if hasattr(x, "columns"):
        return [int(key) for key in x["key"]]
    return [int(str(one).split()[0]) if isinstance(one, str) else int(np.ravel(one)[0]) for one in x]


def serial(inputs: Any, row: int) -> int:
    """The serial of an example as the run's data have it."""
    if hasattr(inputs, "columns"):
        return int(inputs.iloc[row]["serial"])
    one = inputs.iloc[row] if hasattr(inputs, "iloc") else inputs[row]
    return int(one.split()[1]) if isinstance(one, str) else int(np.ravel(one)[1])


@dataclass
class World:
    run: mf.Run
    find: Callable[[Any], tuple[int, str]]  # serial and label of the user's row of that id

    def check(self, split: int, index: Any, id: Any, label: Any = None) -> None:
        data = self.run.dataset()
        found = self.find(id)
        assert found[0] == serial((data.x_train, data.x_test)[split], int(index))
        assert found[1] == self.run.labels[split][int(index)]
        assert label is None or str(label) == found[1]


def frame() -> pd.DataFrame:
    """Rows in no order, called by words."""
    order = np.random.default_rng(1).permutation(N)
    return pd.DataFrame({"key": KEY, "serial": SERIAL, "kind": LABEL}, index=[f"row {k}" for k in range(N)]).iloc[order]


def of_csv(folder: Path, options: str = "") -> tuple[Any, Any]:
    path = folder / "rows.csv"
    lines = [f"{key},{number},{kind},{100 - k}" for k, (key, number, kind) in enumerate(zip(KEY, SERIAL, LABEL))]
    path.write_text("key,serial,kind,no\n" + "\n".join(lines[:7]) + "\n\n\n" + "\n".join(lines[7:]) + "\n\n")
    whole = pd.read_csv(path)
    if options:
        whole = whole.set_index("no")
        return f"csv:{path}?label=kind&test=0.3{options}", lambda id: whole.loc[int(id), ["serial", "kind"]]
    return f"csv:{path}?label=kind&columns=key,serial&test=0.3", lambda id: whole.iloc[int(id)][["serial", "kind"]]


def of_column(folder: Path) -> tuple[Any, Any]:
    return of_csv(folder, "&id=no")


def of_frame(folder: Path) -> tuple[Any, Any]:
    whole = frame()
    x, y = whole[["key", "serial"]], whole["kind"]
    return (x[:28], y[:28], x[28:], y[28:]), lambda id: whole.loc[id, ["serial", "kind"]]


def of_texts(folder: Path) -> tuple[Any, Any]:
    whole = frame()
    whole.index = pd.Index(np.random.default_rng(2).permutation(N) + 1000)
    texts, y = whole["key"].astype(str) + " " + whole["serial"].astype(str), whole["kind"]
    return (texts[:28], y[:28], texts[28:], y[28:]), lambda id: whole.loc[int(id), ["serial", "kind"]]


def of_folder(folder: Path) -> tuple[Any, Any]:
    for row, (key, number, kind) in enumerate(zip(KEY, SERIAL, LABEL)):
        path = folder / "images" / ("test" if row % 4 == 0 else "train") / kind / f"{(7 * row) % N}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.array([[key, number], [0, 0]], np.uint8)).save(path)

    def find(id: str) -> tuple[int, str]:
        return int(np.asarray(Image.open(folder / "images" / id))[0, 1]), id.split("/")[1]

    return f"folder:{folder / 'images'}", find


@pytest.fixture(scope="module", params=[of_csv, of_column, of_frame, of_texts, of_folder], ids=lambda one: one.__name__)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("rows")
    data, find = request.param(folder)
    how: dict[str, Any] = {"record": ("prediction", "logit"), "design": "bernoulli", "keep": 0.5, "seed": 3}
    run = mf.run(data, learner=ByHeart(), trials=60, out=folder / "run", progress=False, **how)
    return World(run, lambda id: tuple(find(id)))


def reopened(world: World) -> mf.Run:
    """The run as another process opens it; its data stay where they were."""
    return mf.open(world.run.path)


def test_tables_are_indexed_by_what_the_user_gave(world: World) -> None:
    for run in (world.run, reopened(world)):
        for table in (run.memorization(), run.mislabels(), run.values(), run.c_scores(), run.profile(3)):
            assert len(table) == run.info.n_train
            for id, row in table.iterrows():
                world.check(0, row["index"], id, row["label"])
                assert row["id"] == id
        for table in (run.pairs(permutations=0), run.duplicates()):
            assert len(table)
            for row in table.itertuples():
                world.check(0, row.train_index, row.train_id)
                world.check(1, row.test_index, row.test_id)
        assert [ids.tolist() for ids in run.ids] == [ids.tolist() for ids in world.run.ids]


def say(*arguments: str) -> str:
    printed = StringIO()
    with pytest.raises(SystemExit) as stop, redirect_stdout(printed):
        main(arguments)
    assert not stop.value.code
    return printed.getvalue()


def asked(command: str, run: mf.Run) -> list[str]:
    if command == "c-score":
        return ["values", str(run.path), "--kind", "c-score"]
    return [command, str(run.path), *(["3"] if command == "profile" else [])]


def rows_of(found: Any) -> Iterator[dict[str, Any]]:
    for part in found.values():
        if isinstance(part, list):
            yield from part


@pytest.mark.parametrize("command", TABLES)
def test_documents_and_files_of_commands(world: World, command: str, tmp_path: Path) -> None:
    arguments = asked(command, world.run)
    listed = list(rows_of(json.loads(say(*arguments, "--json"))))
    for suffix in ("csv", "parquet", "npz"):
        say(*arguments, "--out", str(tmp_path / f"all.{suffix}"))
    with np.load(tmp_path / "all.npz") as arrays:
        of_arrays = [dict(zip(arrays, row)) for row in zip(*(arrays[name].tolist() for name in arrays))]
    tables = [pd.read_csv(tmp_path / "all.csv"), pd.read_parquet(tmp_path / "all.parquet")]
    for rows in (listed, of_arrays, *(table.to_dict("records") for table in tables)):
        assert rows
        for row in rows:
            if "id" in row:
                world.check(0, row["index"], row["id"], row["label"])
            else:
                world.check(0, row["train_index"], row["train_id"])
                world.check(1, row["test_index"], row["test_id"])


@pytest.mark.parametrize("command", TABLES)
def test_printed_lists(world: World, command: str) -> None:
    """Ids stand before positions; cells are apart by two spaces or more, and an id may hold one."""
    lines = [line.split("  ") for line in say(*asked(command, world.run)).splitlines()]
    lines = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    start = next(k for k, line in enumerate(lines) if line[0] in ("id", "train id"))
    titles, found = lines[start], 0
    for line in lines[start + 1 :]:
        if len(line) != len(titles):
            break
        row, found = dict(zip(titles, line)), found + 1
        for split, id, index in ((0, "id", "index"), (0, "train id", "train"), (1, "test id", "test")):
            if id in row:
                world.check(split, row[index], row[id])
    assert found


def test_what_is_said_of_one_test_example(world: World) -> None:
    id = world.run.ids[1][3]
    assert f"Test example 3 (id {id}, label " in say("profile", str(world.run.path), "3")
    assert json.loads(say("profile", str(world.run.path), "3", "--json"))["test_id"] == id
    say("datamodels", str(world.run.path), "--test", "3,1", "--out", str(world.run.folder / "models.npz"))
    with np.load(world.run.folder / "models.npz") as arrays:
        assert arrays["test_id"].tolist() == world.run.ids[1][[3, 1]].tolist()
        assert arrays["train_id"].tolist() == world.run.ids[0].tolist()
    titles, first = (
        line.split("  ") for line in say("datamodels", str(world.run.path), "--test", "3").splitlines()[1:3]
    )
    assert [cell.strip() for cell in titles if cell.strip()][:2] == ["test id", "test"]
    assert next(cell.strip() for cell in first if cell.strip()) == str(id)
    (model,) = json.loads(say("datamodels", str(world.run.path), "--test", "3", "--json"))["models"]
    assert model["test_id"] == id
    if model["most_helpful"] is not None:
        world.check(0, model["most_helpful"], model["most_helpful_id"])


def test_exports(world: World, tmp_path: Path) -> None:
    run = reopened(world)
    mf.export_for(run, tmp_path / "lab.csv", "cleanlab")
    for row in pd.read_csv(tmp_path / "lab.csv").itertuples():
        world.check(0, row.index, row.id, row.label)
    mf.export_for(run, tmp_path / "samples.json", "fiftyone")
    for sample in json.loads((tmp_path / "samples.json").read_text())["samples"]:
        world.check(0, sample["index"], sample["example_id"], sample["ground_truth"]["label"])
    mf.export_for(world.run, tmp_path / "hub", "huggingface")
    for split, name in enumerate(("train", "test")):
        for index, id in enumerate(pq.read_table(tmp_path / "hub" / "data" / f"{name}.parquet")["id"].to_pylist()):
            world.check(split, index, id)
    mf.export_published(run, tmp_path / "published.npz")
    mf.export_published(run, tmp_path / "pairs.npz", pairs=True)
    with np.load(tmp_path / "published.npz") as all_, np.load(tmp_path / "pairs.npz") as pairs:
        for split, name in enumerate(("tr", "tt")):
            for index, id in enumerate(all_[f"{name}_id"].tolist()):
                world.check(split, index, id)
            for index, id in zip(pairs[f"{name}_idx"], pairs[f"{name}_id"].tolist(), strict=True):
                world.check(split, index, id)


def test_trials_take_ids_along(world: World, tmp_path: Path) -> None:
    mf.export_trials(world.run, tmp_path / "trials.npz")
    say("import", str(tmp_path / "trials.npz"), "--out", str(tmp_path / "imported"))
    say("merge", str(tmp_path / "merged"), str(tmp_path / "imported"))
    for name in ("imported", "merged"):
        assert [ids.tolist() for ids in mf.open(tmp_path / name).ids] == [ids.tolist() for ids in world.run.ids]


def test_the_explorer_calls_examples_by_their_ids(world: World, tmp_path: Path) -> None:
    with_data = world.run.report(tmp_path / "with")
    shutil.copytree(world.run.path, tmp_path / "run")
    run_file = tmp_path / "run" / "run.json"
    content = json.loads(run_file.read_text())
    content["dataset"]["name"] = "arrays"  # and so nothing says where its data are
    run_file.write_text(json.dumps(content))
    without = mf.open(tmp_path / "run").report(tmp_path / "without")
    for page in (with_data, without):
        assert document(page, "meta")["ids"] is True
        for split, name in enumerate(("train", "test")):
            for index, id in enumerate(document(page, f"{name}-inputs-0")["ids"]):
                world.check(split, index, id)
    assert document(without, "meta")["inputs"] == "none"


# ---- what an id is


def made(train: Any, test: Any, y_train: Any = None, y_test: Any = None, **options: Any) -> mf.Dataset:
    labels = ([k % 2 for k in range(len(x))] for x in (train, test))
    y = [given if given is not None else own for given, own in zip((y_train, y_test), labels)]
    return from_arrays(train, y[0], test, y[1], **options)


def test_an_index_that_only_counts_is_no_name() -> None:
    x = pd.DataFrame({"a": range(6)})
    assert made(x[:4], x[:2]).train_ids is None
    assert made(np.zeros((4, 2)), np.zeros((2, 2))).train_ids is None
    data = made(x[:4], x[4:])
    assert (data.train_ids, data.test_ids) == (None, [4, 5])


def test_labels_name_the_rows_of_inputs_that_cannot() -> None:
    y = pd.Series([0, 1, 0, 1, 0, 1], index=list("fbadec"))
    data = made(np.zeros((4, 1)), [[1.0], [2.0]], y[:4], y[4:])
    assert (data.train_ids, data.test_ids) == (["f", "b", "a", "d"], ["e", "c"])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (pd.Index([3, 1, 2, 0]), [3, 1, 2, 0]),
        (pd.Index([0.5, 1, 2, 3]), [0.5, 1.0, 2.0, 3.0]),
        (pd.Index([7, "a", 2, None], dtype=object), ["7", "a", "2", "None"]),
        (pd.Index([2**63, 1, 2, 3], dtype="uint64"), [str(2**63), "1", "2", "3"]),
        (pd.date_range("2026-01-05", periods=4, tz="UTC"), [f"2026-01-0{day} 00:00:00+00:00" for day in (5, 6, 7, 8)]),
        (pd.MultiIndex.from_product([["x", "y"], [1, 2]]), ["('x', 1)", "('x', 2)", "('y', 1)", "('y', 2)"]),
    ],
)  # fmt: skip
def test_ids_are_numbers_or_texts(index: pd.Index, expected: list[Any]) -> None:
    x = pd.DataFrame({"a": [1, 2, 3, 4]}, index=index)
    data = made(x, x, x.index.size * [0] if len(x) < 4 else None)
    assert data.train_ids == expected
    assert set(map(type, data.train_ids or ())) == {type(expected[0])}


def test_ids_of_both_splits_are_of_one_kind() -> None:
    data = made(np.zeros((2, 1)), np.zeros((2, 1)), train_ids=np.array([5, 6]), test_ids=["a", "b"])
    assert (data.train_ids, data.test_ids) == (["5", "6"], ["a", "b"])


def test_inputs_and_labels_with_different_indices_are_refused() -> None:
    x, y = pd.DataFrame({"a": [1, 2, 3]}, index=[5, 7, 9]), pd.Series([0, 1, 0], index=[5, 9, 7])
    with pytest.raises(DatasetError) as caught:
        made(x, x, y, y)
    assert str(caught.value) == (
        "arrays: train inputs and labels have different indices: row 1 is 7 in the inputs and 9 in the labels. Give"
        " both in one order (y.loc[x.index]); if they are in one order already, give the labels without their index"
        " (y.to_numpy())."
    )
    assert made(x, x, y.loc[x.index], y.loc[x.index]).train_ids == [5, 7, 9]
    assert made(x, x, y.to_numpy(), y.to_numpy()).train_ids == [5, 7, 9]
    with pytest.raises(DatasetError, match="test inputs and labels have different indices"):
        made(x, x, y.loc[x.index], y)


def test_ids_that_occur_twice_are_told_of() -> None:
    x = pd.DataFrame({"a": [1, 2, 3]}, index=[5, 7, 5])
    (note,) = made(x, x[:2]).notes
    assert "several training examples have the id 5" in note


def test_a_fault_of_a_row_is_told_with_its_id(tmp_path: Path) -> None:
    x = pd.DataFrame({"a": [1, np.nan, 3]}, index=["u", "v", "w"])
    with pytest.raises(DatasetError, match=r"train example 1 \(id 'v'\) holds a NaN"):
        made(x, x)


def test_a_column_of_ids_is_as_typed_and_no_input(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("no,x,label\n" + "".join(f"{k:03},{k},{k % 2}\n" for k in range(10)))
    data = load(f"csv:{path}?id=no")
    assert sorted([*(data.train_ids or ()), *(data.test_ids or ())]) == [f"{k:03}" for k in range(10)]
    assert list(data.x_train.columns) == ["x"]


def test_a_run_that_was_made_without_ids_has_positions(tmp_path: Path) -> None:
    x = np.arange(20, dtype=float)[:, None]
    run = mf.run(
        (x, np.arange(20) % 2, x, np.arange(20) % 2), learner=ByHeart(), trials=4, out=tmp_path, progress=False
    )
    assert run.store.examples.ids() is None
    assert [ids.tolist() for ids in run.ids] == [list(range(20))] * 2
    assert run.memorization().index.tolist() == run.memorization()["id"].tolist() == list(range(20))
    assert "id" not in say("scores", str(tmp_path)).split("The most memorized:")[1]
    with np.load(exported(run, tmp_path / "published.npz")) as arrays:
        assert "tr_id" not in arrays


def exported(run: mf.Run, path: Path) -> Path:
    mf.export_published(run, path)
    return path


def test_a_run_keeps_the_ids_that_it_was_begun_with(tmp_path: Path) -> None:
    x, y = frame()[["key", "serial"]], frame()["kind"]
    how: dict[str, Any] = {"learner": ByHeart(), "trials": 4, "out": tmp_path, "progress": False}
    first = mf.run((x, y, x, y), **how)
    with pytest.warns(mf.errors.MemfluenceWarning, match=r"begun with other ids \(row \d+, ...\) of its examples and"):
        again = mf.run((x.set_axis(range(9, 49)), y.to_numpy(), x, y.to_numpy()), **{**how, "trials": 5})
    assert again.ids[0].tolist() == first.ids[0].tolist() == x.index.tolist()


@pytest.mark.filterwarnings("ignore::memfluence.errors.MemfluenceWarning")
def test_tables_of_experiments(world: World) -> None:
    found = mf.experiments.named("pairs").summarize(world.run, mem=0.0, infl=0.1).table
    for row in found.itertuples():
        world.check(0, row.train_index, row.train_id)
        world.check(1, row.test_index, row.test_id)
    for row in mf.experiments.named("examples").summarize(world.run).table.to_dict("records"):
        world.check(0, row["index"], row["id"])
