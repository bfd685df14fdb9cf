"""How much of a list is shown and drawn, and what things are called: `pairs --top --images`, `--title`, class names."""

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import memfluence as mf
from memfluence.cli import main
from memfluence.errors import InputError, RunMismatchError
from report.explorer_files import document
from report.tiny_run import N_TEST, N_TRAIN, make_run


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def said(*arguments: Any) -> str:
        with pytest.raises(SystemExit) as stop:
            main(list(map(str, arguments)))
        assert not stop.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    return said


def pictures(tmp_path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Data of the tiny run: its labels, and images that nobody needs to tell apart."""
    rng = np.random.default_rng(0)
    sizes, labels = (N_TRAIN, N_TEST), np.array(["cat", "dog"])
    x_train, x_test = (rng.integers(0, 255, (n, 8, 8), np.uint8) for n in sizes)
    y_train, y_test = (labels[np.arange(n) % 2] for n in sizes)
    np.savez(tmp_path / "data.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return x_train, y_train, x_test, y_test


def rows(printed: str) -> int:
    """Rows of the list of pairs that is printed."""
    lines = printed.splitlines()
    start = next(k for k, line in enumerate(lines) if line.split()[:2] == ["train", "test"])
    return sum(line.lstrip()[:1].isdigit() for line in lines[start + 1 :])


@pytest.mark.parametrize("more", [(), ("--cross-fit",)])
def test_pairs_are_listed_and_drawn_as_far_as_asked(
    tmp_path: Path, say: Callable[..., str], more: tuple[str, ...]
) -> None:
    pictures(tmp_path)
    run = make_run(tmp_path).path
    assert rows(say("pairs", run, *more)) >= 4
    drawn = ("--images", tmp_path / "pairs.svg", "--data", f"npz:{tmp_path / 'data.npz'}")
    printed = say("pairs", run, "--top", "3", *drawn, *more)
    assert rows(printed) == 3
    assert f"Their pictures are in {tmp_path / 'pairs.svg'}." in printed
    assert "All of them: --out FILE.csv or --json." in printed
    text = (tmp_path / "pairs.svg").read_text()
    assert text.count("<image") == 2 * 3
    assert "High-influence pairs." in text
    assert "train 0, test 0" in text


def test_a_report_takes_data_in_any_form(tmp_path: Path) -> None:
    run, arrays = make_run(tmp_path), pictures(tmp_path)
    for form in (arrays, list(arrays), mf.datasets.from_arrays(*arrays), f"npz:{tmp_path / 'data.npz'}"):
        page = mf.open(run.path).report(tmp_path / "out", dataset=form)
        assert document(page, "meta")["inputs"] == "images"
    assert mf.open(run.path).dataset(arrays).n_train == N_TRAIN
    with pytest.raises(RunMismatchError):
        run.report(tmp_path / "other", dataset=(arrays[0], arrays[1][::-1], *arrays[2:]))


def title(page: Path) -> str:
    found = document(page, "meta")["title"]
    assert f"<title>{escape(found)} – memfluence</title>" in page.read_text()
    return str(found)


def test_a_report_is_called_as_asked_or_by_names_that_mean_something(tmp_path: Path, say: Callable[..., str]) -> None:
    """Not by those of files (d3.npz), variables (`model = ...`) or functions."""
    pictures(tmp_path)
    (tmp_path / "data.npz").rename(tmp_path / "d3.npz")
    (tmp_path / "l7.py").write_text(
        "from sklearn.linear_model import LogisticRegression\nmodel = LogisticRegression()\n"
    )
    how: dict[str, Any] = {"trials": 3, "progress": False}
    runs = [
        mf.run(data, learner=learner, out=tmp_path / f"run{k}", **how)
        for k, (data, learner) in enumerate(
            [
                (f"npz:{tmp_path / 'd3.npz'}", f"{tmp_path / 'l7.py'}:model"),
                (f"npz:{tmp_path / 'd3.npz'}", LogisticRegression()),
                ("longtail?n_train=40&n_test=20&n_classes=2", LogisticRegression()),
            ]
        )
    ]
    assert [title(run.report(tmp_path / "out")) for run in runs] == [
        f"What is memorized in {N_TRAIN} examples",
        f"What LogisticRegression memorizes in {N_TRAIN} examples",
        "What LogisticRegression memorizes in longtail",
    ]
    assert title(runs[0].report(tmp_path / "out", title="Cats & dogs")) == "Cats & dogs"
    say("report", runs[0].path, "--title", "My cats", "--out", tmp_path / "site")
    assert title(tmp_path / "site" / "index.html") == "My cats"


TRUTH = {"0": "newt", "1": "frog", "2": "toad"}
LISTS = ("scores", "mislabels", "pairs", "duplicates", "profile", "attack", "c-score")


def words_of(run: Path, command: str, say: Callable[..., str]) -> set[str]:
    """The names, or the labels, in the columns of classes that a command prints."""
    arguments = ["values", run, "--kind", "c-score"] if command == "c-score" else [command, run]
    arguments += {
        "profile": ["3"],
        "pairs": ["--mem", "-1", "--infl", "-1"],
        "duplicates": ["--mem", "-1", "--infl", "-1"],
    }.get(command, [])
    lines = [line.split() for line in say(*arguments).splitlines()]
    start = next(k for k, line in enumerate(lines) if "label" in line and line[0] in ("index", "train"))
    return {line[lines[start].index("label")] for line in lines[start + 1 :] if line[0].isdigit()}


@pytest.fixture(scope="module")
def amphibians(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays with labels 0, 1, 2 in files with and without names of classes, and a run of each."""
    folder, rng = tmp_path_factory.mktemp("amphibians"), np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 2)) + y[:, None]
    arrays = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    np.savez(folder / "bare.npz", **arrays)
    np.savez(folder / "named.npz", **arrays, class_names=np.array(list(TRUTH.values())))
    how: dict[str, Any] = {"learner": LogisticRegression(), "trials": 20, "record": ("prediction", "logit")}
    for name in ("bare", "named"):
        mf.run(f"npz:{folder / name}.npz", **how, out=folder / name, progress=False)
    (folder / "names.txt").write_text("newt\nfrog\n toad \n\n")
    (folder / "model.py").write_text(
        "from sklearn.linear_model import LogisticRegression\nmodel = LogisticRegression()\n"
    )
    return folder


@pytest.mark.parametrize("command", LISTS)
def test_lists_call_classes_by_the_names_that_data_give(
    amphibians: Path, command: str, say: Callable[..., str]
) -> None:
    assert words_of(amphibians / "bare", command, say) <= set(TRUTH)
    assert words_of(amphibians / "named", command, say) <= set(TRUTH.values())
    table = mf.open(amphibians / "named").memorization()
    assert set(table["label"]) == {0, 1, 2}  # for programs they are what their owner wrote


def test_classes_may_be_named_in_a_file(amphibians: Path, tmp_path: Path, say: Callable[..., str]) -> None:
    """The run keeps the names; given again, or later, the last ones count."""
    data, names = f"npz:{amphibians / 'bare.npz'}", ("--class-names", amphibians / "names.txt")
    learner = ("--learner", f"{amphibians / 'model.py'}:model", "--engine", "local", "--quiet")
    for first, second in ((names, ()), ((), names)):
        out = tmp_path / str(len(first))
        for number, more in enumerate((first, second)):
            say("run", data, *learner, "--trials", 5 + number, "--out", out, *more)
        run = mf.open(out)
        assert run.class_names == run.dataset().class_names == tuple(TRUTH.values())
        assert words_of(out, "scores", say) <= set(TRUTH.values())
        assert document(run.report(tmp_path / "site"), "meta")["classes"] == list(TRUTH.values())
    assert "label newt)" in say("profile", out, int(np.flatnonzero(run.label_codes[1] == 0)[0]))
    given = mf.run(
        data, learner=LogisticRegression(), trials=2, class_names=["a", "b", "c"], out=tmp_path / "g", progress=False
    )
    assert given.class_names == ("a", "b", "c")
    with pytest.raises(InputError, match=r"2 class names for 3 classes; give one for each, .* labels \(0, 1, 2\)"):
        mf.run(data, learner=LogisticRegression(), class_names=["a", "b"])
    with pytest.raises(InputError, match=r"The file of class names .*none.txt cannot be read \(No such file"):
        mf.run(data, learner=LogisticRegression(), class_names=tmp_path / "none.txt")
