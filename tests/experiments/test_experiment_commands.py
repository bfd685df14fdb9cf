"""`memfluence experiment NAME`: one JSON document or a readable table, files in --out, one sentence for bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from memfluence.cli import main

DATA = "longtail?n_train=60&n_test=80&n_classes=3&subpopulations=30&seed=1"


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main([*arguments, "--debug"] if not code else arguments)
        captured = self._capsys.readouterr()
        assert (stop.value.code or 0) == code, captured.err
        self.errors = captured.err
        return captured.out


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@pytest.fixture
def run(shell: Shell) -> str:
    shell("run", DATA, "--trials", "120", "--set", "epochs=8", "--out", "run", "--quiet")
    return "run"


OPTIONS = {
    "removal": ("--thresholds", "0.2,0.4", "--repeats", "2", "--mem", "0.4"),
    "utility": ("--repeats", "2"),
    "last-layer": ("--trials", "30", "--linear-set", "epochs=3", "--infl", "0.3"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_experiments_of_a_run(name: str, shell: Shell, run: str) -> None:
    given = ("experiment", name, run, *OPTIONS[name], "--quiet")
    document = json.loads(shell(*given, "--json", "--out", "here"))
    assert document["experiment"] == name
    assert document == json.loads(Path("here", f"{name}.json").read_text())
    for suffix in (".parquet", ".png", ".svg"):
        assert Path("here", f"{name}{suffix}").stat().st_size > 1000
    shown = shell(*given)
    assert shown.splitlines()[0] == document["title"].splitlines()[0]
    assert Path(run, "experiments", name, f"{name}.json").exists()
    if name == "last-layer":
        assert "The representation has seen every training example" in shown


def test_the_long_tail_needs_no_run(shell: Shell) -> None:
    small = ("--exponents", "1", "--subpopulations", "30", "--sizes", "60,40", "--trials", "32", "--repeats", "2")
    limits = ("--epochs", "1,4", "--clips", "0.1", "--noises", "0.5,2", "--noise-clip", "3", "--prunes", "0.5")
    flips = ("--weight-decays", "0.1", "--drops", "0.2", "--flips", "0.2", "--flip-worlds", "2", "--no-margins")
    shown = shell("experiment", "long-tail", *small, *limits, *flips, "--quiet")
    assert "explained" in shown
    found = json.loads(Path("runs/long-tail/long-tail.json").read_text())
    assert [one["n_train"] for one in found["numbers"]["worlds"]] == [60, 40]
    limited = [(one["clip"], one["noise"]) for one in found["numbers"]["clipping"]]
    assert limited == [(0, 0), (0.1, 0), (3, 0), (3, 0.5), (3, 2)]
    assert [one["flip"] for one in found["numbers"]["flips"]] == [0, 0.2]
    assert "kept_margin" not in found["numbers"]["flips"][1]["scores"]
    assert Path("runs/long-tail/long-tail-flips.svg").exists()


def test_the_only_example_of_a_class_may_be_removed(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    y_train = np.array([0, 1] * 20 + [2])
    x_train = np.stack([y_train == k for k in range(3)], 1) + 0.1 * rng.normal(size=(41, 3))
    np.savez("data.npz", x_train=x_train, y_train=y_train, x_test=x_train[[0, 1, 40]], y_test=y_train[[0, 1, 40]])
    shell("run", "npz:data.npz", "--trials", "60", "--out", "lone", "--quiet")
    document = json.loads(shell("experiment", "removal", "lone", "--thresholds", "0.3", "--repeats", "2", "--json"))
    point = document["numbers"]["memorized"]
    assert point["emptied_classes"] == ["2"]
    assert point["removed"] == 1
    assert point["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert "1 class(es) (2) have no example left" in shell.errors


def test_bad_input_is_one_sentence_and_leaves_nothing(shell: Shell, run: str) -> None:
    shell("run", DATA, "--trials", "10", "--out", "few", "--quiet")
    for arguments, says in (
        (("removal", "few"), "has 10 trial(s), too few"),
        (("utility", "few"), "has 10 trial(s), too few"),
        (("last-layer", "few"), "has 10 trial(s), too few"),
        (("utility", run, "--infl", "0.999"), "has no high-influence pairs to remove"),
        (("removal", run, "--thresholds", "a"), "--thresholds must be numbers with commas"),
        (("removal", run, "--thresholds", "2"), "must be a number in (0, 1]"),
        (("removal", run, "--repeats", "1"), "The --repeats option"),
        (("removal", run, "--set", "epochs=3"), "name it as well (--learner)"),
        (("removal", run, "--data", DATA.replace("seed=1", "seed=2")), "its content differs"),
        (("last-layer", run, "--learner", "sklearn.linear_model:LogisticRegression"), "this needs a network"),
        (("last-layer", run, "--learner", "mlp", "--set", "hidden="), "without hidden layers"),
        (("long-tail", "--exponents", "x"), "--exponents must be numbers"),
        (("nothing", run), "No such command 'nothing'"),
    ):
        assert shell("experiment", *arguments, "--quiet", code=2) == ""
        assert says in shell.errors, (arguments, shell.errors)
        assert "Traceback" not in shell.errors
    assert not Path(run, "experiments").exists()
    assert not Path("few", "experiments").exists()
