"""`memfluence experiment` for what is read off runs: files, JSON, text, and one sentence for misuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from memfluence.cli import main

FILES = (".json", ".parquet", ".png", ".svg")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small world with images, made without a learner."""
    import memfluence as mf

    here = tmp_path_factory.mktemp("digits")
    rng = np.random.default_rng(0)
    y_train, y_test = np.arange(60) % 3, np.arange(30) % 3
    images = rng.integers(0, 256, (90, 8, 8), dtype=np.uint8)
    np.savez(here / "data.npz", x_train=images[:60], y_train=y_train, x_test=images[60:], y_test=y_test)
    for name in ("run", "other"):
        mask = rng.random((120, 60)) < 0.7
        train, test = np.ones((120, 60), bool), np.ones((120, 30), bool)
        train[:, :24] = mask[:, :24]
        train[:, 24:30] = mask[:, 24:30] | (rng.random((120, 6)) < 0.5)
        test[:, :24] = mask[:, :24]
        labels = {"train_labels": y_train, "test_labels": y_test}
        np.savez(here / "trials.npz", mask=mask, train_correct=train, test_correct=test, **labels)
        mf.import_trials([here / "trials.npz"], here / name, dataset=f"npz:{here / 'data.npz'}")
    return here


def run_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("examples", ["--classes", "2,0", "--count", "2"], "memorization"),
        (
            "histogram",
            ["--permutations", "2", "--infl", "0.6"],
            "24 pairs of 24 training and 24 test examples (80.00% of the test set)",
        ),
        ("pairs", [], "influence"),
        ("consistency", ["{other}", "--splits", "2", "--permutations", "1"], "Mean test accuracy"),
        ("thresholds", ["--splits", "2", "--permutations", "1"], "Use them: memfluence pairs"),
    ],
)
def test_each_command(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, options: list[str], said: str
) -> None:
    given = [option.format(other=digits / "other") for option in options]
    command = ["experiment", name, str(digits / "run"), *given, "--out", str(tmp_path)]
    code, out, err = run_command(command, capsys)
    assert (code, err) == (0, "")
    assert said in out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}{ending}" for ending in FILES)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = run_command([*command, "--json"], capsys)
    assert json.loads(out) == json.loads((tmp_path / f"{name}.json").read_text())
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before  # the same run, the same bytes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["examples", "{run}", "--classes", "cat"], "No training example is of the class 'cat'"),
        (["histogram", "{run}", "--permutations", "-1"], "permutations"),
        (["pairs", "{run}", "--infl", "2"], "between -1 and 1"),
        (["consistency", "{run}", "--splits", "1"], "--splits option"),
        (["consistency", "{run}", "nowhere"], "nowhere"),
        (["thresholds", "{run}", "--jaccard", "2"], "--jaccard index"),
        (["thresholds", "{run}", "--memory", "2"], "needs a unit"),
    ],
)
def test_misuse_is_one_sentence(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    given = [argument.format(run=digits / "run") for argument in arguments]
    code, out, err = run_command(["experiment", *given, "--out", str(tmp_path / "out")], capsys)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
