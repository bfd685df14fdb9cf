"""`csv:`: one file that is split or two files, texts, names, and what users get wrong."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import memfluence as mf
from memfluence.cli import main
from memfluence.datasets import load
from memfluence.errors import DatasetError

HEADER = "name,age,city,kind\n"
ROWS = [f"n{row},{row}.5,{'Bonn' if row % 3 else 'NA'},{'ant' if row % 2 else 'bee'}" for row in range(20)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(HEADER + "\n".join(ROWS).replace(",NA,", ",Rome,") + "\n")
    return path


def test_one_file_is_split_by_a_fraction_and_a_seed(table: Path) -> None:
    data = load(f"csv:{table}?label=kind&id=name&test=0.3&seed=4")
    assert (data.n_train, data.n_test) == (14, 6)
    assert list(data.x_train.columns) == ["age", "city"]
    assert data.classes == ("ant", "bee")
    whole = pd.read_csv(table)
    for inputs, ids, labels in (
        (data.x_train, data.train_ids, data.labels("train")),
        (data.x_test, data.test_ids, data.labels("test")),
    ):
        rows = [int(name[1:]) for name in ids]
        assert rows == sorted(rows)
        pd.testing.assert_frame_equal(inputs, whole.loc[rows, ["age", "city"]].reset_index(drop=True))
        assert labels.tolist() == whole.kind[rows].tolist()
    assert set(data.train_ids) | set(data.test_ids) == set(whole.name)
    assert load(data.name).fingerprint == data.fingerprint
    assert load(f"csv:{table}?label=kind&id=name&test=0.3&seed=5").train_ids != data.train_ids


def test_two_files(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later.csv").write_text(HEADER + "a,1,Bonn,ant\nb,2,Rome,bee\n")
    monkeypatch.chdir(tmp_path)
    data = load("csv:people.csv?label=kind&columns=age&test=later.csv")
    monkeypatch.chdir(tmp_path.parent)
    assert load(data.name).fingerprint == data.fingerprint  # from anywhere: the second file lies beside the first
    assert (data.n_train, data.n_test) == (20, 2)
    assert data.x_test["age"].tolist() == [1, 2]
    assert data.train_ids[:2] == [0, 1]
    assert data.test_ids == [0, 1]


def test_texts_are_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("﻿words,label\nNA,yes\n007,NA\n\"two\nlines, 'quoted'\",yes\nlast,NA\n", encoding="utf-8")
    data = load(f"csv:{path}?text=words&test=0.25")
    words = dict(zip([*data.train_ids, *data.test_ids], [*data.x_train, *data.x_test]))
    assert [words[row] for row in range(4)] == ["NA", "007", "two\nlines, 'quoted'", "last"]
    assert data.classes == ("NA", "yes")


def test_whole_numbers_are_labels(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("x,label\n" + "".join(f"{k},{k % 3}\n" for k in range(9)))
    data = load(f"csv:{tmp_path}/n.csv")
    assert data.classes == (0, 1, 2)
    assert np.array_equal(data.x_train["x"] % 3, data.y_train)


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        (("007", "7", "08"), ("007", "08", "7")),
        (("True", "False", "True"), ("False", "True")),
        (("1.0", "1", "2"), ("1", "1.0", "2")),
        (("-3", "12", "0"), (-3, 0, 12)),
        (("99999999999999999999", "1", "2"), ("1", "2", "99999999999999999999")),
    ],
)
def test_labels_are_what_the_file_says(
    tmp_path: Path, written: tuple[str, ...], classes: tuple[int | str, ...]
) -> None:
    (tmp_path / "n.csv").write_text("x,label\n" + "".join(f"{k},{written[k % 3]}\n" for k in range(12)))
    data = load(f"csv:{tmp_path}/n.csv")
    assert data.classes == classes
    for inputs, split in ((data.x_train, "train"), (data.x_test, "test")):
        assert [str(label) for label in data.labels(split)] == [written[k % 3] for k in inputs["x"]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "has no column 'label'; name one with label=.* of: name, age, city, kind"),
        ("?label=kind&id=who", "no column 'who'"),
        ("?label=kind&columns=age,size", "no column 'size'"),
        ("?label=kind&columns=kind", "cannot be the input, too"),
        ("?label=kind&text=city&columns=age", "give one of text= and columns="),
        ("?label=kind&test=1.5", "a fraction between 0 and 1"),
        ("?label=kind&test=nowhere.csv", "nowhere.csv does not exist"),
        ("?label=kind&seeds=1", "no option 'seeds'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(table: Path, options: str, says: str) -> None:
    with pytest.raises(DatasetError, match=says) as caught:
        load(f"csv:{table}{options}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read as a UTF-8 CSV"),
        (b"x,label\n1,\xff\n", "cannot be read as a UTF-8 CSV"),
        (b"x,label\n1,a,5,6\n2,b\n3,c,1,1,1\n", "cannot be read as a UTF-8 CSV"),
        (b"x,label\n1,a,5\n2,b,6\n", "cannot be read as a UTF-8 CSV"),
        (b"x,label\n1,a\nNA,b\n2,a\n", "row 2 of .* has no value in the column 'x'"),
        (b"x,label\n1,a\n3,\n2,a\n", "row 2 of .* has no value in the column 'label'"),
        (b"x,label\n", "has 0 row"),
        (b"label\na\nb\n", "cannot be the input"),
        (b"x,label,label\n1,a,a\n2,b,b\n", "has 2 columns 'label'; rename or drop all but one"),
        (b"x, label,label\n1,a,a\n2,b,b\n", "2 columns 'label'"),
        (b"x,x,label\n1,2,a\n2,1,b\n", "2 columns 'x'"),
        (b",,\n1,2,a\n", "has no column 'label'"),
        (b"x;label\n1,5;a\n2,5;b\n", "separates its cells by ';'; save it with commas"),
    ],
)
def test_a_file_that_is_not_such_a_table(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=says) as caught:
        load(f"csv:{tmp_path}/bad.csv")
    assert "\n" not in str(caught.value)


def test_a_bare_file_name_is_understood(table: Path) -> None:
    with pytest.raises(DatasetError, match="did you mean 'csv:"):
        load(str(table))


def test_scores_name_the_rows(table: Path, tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    run = mf.run(
        f"csv:{table}?label=kind&columns=age&test=0.3",
        learner=LogisticRegression(),
        trials=4,
        out=tmp_path / "run",
        progress=False,
    )
    assert [names.tolist() for names in run.ids] == [run.dataset().train_ids, run.dataset().test_ids]
    with pytest.raises(SystemExit):
        main(["scores", str(tmp_path / "run"), "--out", str(tmp_path / "scores.csv")])
    assert pd.read_csv(tmp_path / "scores.csv")["id"].tolist() == run.dataset().train_ids
    assert mf.open(tmp_path / "run").dataset().n_train == 14


def test_missing_inputs_are_kept_for_learners_that_fill_them_in(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), np.arange(80) % 2
    x[:, 0] += 2 * y
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "word": np.where(y, "up", "down"), "label": y})
    table.loc[::7, "b"] = np.nan
    table.loc[::9, "word"] = None
    path = tmp_path / "holes.csv"
    table.to_csv(path, index=False)
    with pytest.raises(DatasetError, match="missing=keep"):
        load(f"csv:{path}")
    data = load(f"csv:{path}?missing=keep")
    assert data.has_missing
    assert load(data.name).fingerprint == data.fingerprint
    numbers = load(f"csv:{path}?missing=keep&columns=a,b")
    filling = make_pipeline(SimpleImputer(), LogisticRegression())
    run = mf.run(numbers, learner=filling, trials=20, out=tmp_path / "run", progress=False)
    assert run.status()["test_accuracy"] > 0.7
    run.report(tmp_path / "report")
    shown = "".join(path.read_text() for path in (tmp_path / "report").rglob("train-inputs-*.js"))
    assert "missing" in shown
    assert '"nan"' not in shown
    with pytest.raises(mf.MemfluenceError, match="networks need all of them"):
        mf.run(numbers, learner="mlp", trials=2, out=tmp_path / "mlp", progress=False)


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ("x,label\n1,a\ninf,b\n,a\n4,b\n", "missing=keep", "holds an infinity; drop or replace it first"),
        ("x,label\n1,a\n,b\n3,\n4,b\n", "missing=keep", "row 3 of .* has no value in the column 'label'"),
        ("x,label\n1,a\n2,b\n", "missing=yes", "must be 'refuse' or 'keep'"),
    ],
)
def test_what_missing_does_not_allow(tmp_path: Path, content: str, options: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DatasetError, match=says):
        load(f"csv:{tmp_path / 't.csv'}?test=0.5&{options}")


def test_how_a_file_is_written_may_be_said(tmp_path: Path) -> None:
    rows = [("a;b", 1.5, "x"), ("c", 2.5, "y"), ("d'", 3.5, "x"), ("e", 4.5, "y")]
    plain = pd.DataFrame(3 * rows, columns=["word", "n", "label"])
    plain.to_csv(tmp_path / "plain.csv", index=False)
    plain.to_csv(tmp_path / "odd.csv", index=False, sep=";", quotechar="'")
    plain.to_csv(tmp_path / "tab.csv", index=False, sep="\t")
    plain.to_csv(tmp_path / "bare.csv", index=False, header=False)
    expected = load(f"csv:{tmp_path}/plain.csv?text=word&test=0.5")
    for written in (
        "odd.csv?text=word&sep=;&quote='",
        "tab.csv?text=word&sep=tab",
        "bare.csv?text=0&label=2&header=false",
    ):
        data = load(f"csv:{tmp_path}/{written}&test=0.5")
        assert data.fingerprint == load(data.name).fingerprint == expected.fingerprint
        assert data.train_ids == expected.train_ids
    assert load(f"csv:{tmp_path}/tab.csv", text="word", sep="\t", test=0.5).fingerprint == expected.fingerprint
    numbers = load(f"csv:{tmp_path}/bare.csv?columns=1&label=2&header=false&test=0.5")
    assert list(numbers.x_train.columns) == ["1"]
    with pytest.raises(DatasetError, match="the option 'sep' must be one character, such as ';' or 'tab'; got '::'"):
        load(f"csv:{tmp_path}/odd.csv?sep=::")


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ("x;label\n1;a\n2;b\n", "", "separates its cells by ';'; save it with commas, or add sep=; to the dataset's"),
        ("x\tlabel\n1\ta\n2\tb\n", "", "or add sep=tab to the dataset's name"),
        ("x,label\n1,a\n2,b\n", "?sep=;", "separates its cells by ','"),
        ("1.5,2,a\n2,1,b\n", "", r"no column 'label' \(its first line looks like a row: .* add header=false, and col"),
        ("1,1,a\n2,1,b\n", "", "has 2 columns '1'; rename .* looks like a row"),
        ("1,2,a\n2,1,b\n", "?header=false", "no column 'label'; name one with label=.* of: 0, 1, 2"),
        ("age,target\n1,a\n2,b\n", "?label=targe", r"no column 'targe' \(did you mean 'target'\?\)"),
        ("age,target\n1,a\n2,b\n", "?tset=0.3", r"no option 'tset' \(did you mean 'test'\?\)"),
        ("age,target\n,a\n2,b\n", "?label=kind", "no column 'kind'"),  # before the gap in the other column
        (
            "age,target\n,\n2,b\n",
            "?label=target",
            r"row 1 of the table \(iloc\[0\]\) has no value in the column 'target'",
        ),
    ],
)
def test_the_way_out_is_named(tmp_path: Path, content: str, options: str, says: str) -> None:
    """And the path of the file is in the message once."""
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DatasetError, match=says) as caught:
        load(f"csv:{tmp_path}/t.csv{options}")
    assert str(caught.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    "name", ["csv:{}/none.csv?label=a", "npz:{}/none.npz", "folder:{}/none?size=4", "cifar10:{}/none"]
)
def test_a_path_is_in_a_message_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match="does not exist") as caught:
        load(name.format(tmp_path))
    assert str(caught.value).count(str(tmp_path)) == 1


def test_python_is_told_how_values_may_be_missing() -> None:
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1, 2, 3]})
    with pytest.raises(DatasetError, match=r"fill such values first, or say missing=True of from_arrays if the model"):
        mf.datasets.from_arrays(table, [0, 1, 0], table, [0, 1, 0])
    assert mf.datasets.from_arrays(table, [0, 1, 0], table, [0, 1, 0], missing=True).has_missing
    with pytest.raises(DatasetError, match=r"fill such values first\.$"):
        mf.datasets.from_arrays(table.fillna(np.inf), [0, 1, 0], table, [0, 1, 0])
