"""Names of data: a run that is handed on does not say in whose directories it was made, and finds its data here."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from memfluence.datasets import portable_name
from memfluence.errors import InputError


def first_label(x: np.ndarray, y: np.ndarray, seed: int):
    return lambda z: np.full(len(z), y[0])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMFLUENCE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    x, y = rng.random((20, 3)), np.arange(20) % 2
    path = tmp_path / "private" / "data.npz"
    path.parent.mkdir()
    np.savez(path, x_train=x, y_train=y, x_test=x[:6] + 1, y_test=y[:6])
    return path


def run(data: Path, out: Path, trials: int = 4) -> mf.Run:
    return mf.run(f"npz:{data}", learner=first_label, trials=trials, out=out, progress=False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digits", "digits"),
        ("longtail?n_train=60&flip=0.1", "longtail?n_train=60&flip=0.1"),
        ("hf:org/name?label=fine", "hf:org/name?label=fine"),
        ("npz:/home/a/data.npz", "npz:data.npz"),
        ("cifar100:/data/cifar-100-python?n_train=5", "cifar100:cifar-100-python?n_train=5"),
        ("csv:/home/a/train.csv?test=/home/a/test.csv&label=y", "csv:train.csv?test=test.csv&label=y"),
        ("labels of trials.npz", "labels of trials.npz"),
    ],
)
def test_a_name_without_directories(name: str, said: str) -> None:
    assert portable_name(name) == said


def test_run_json_says_no_directory_and_the_data_are_found_here(data: Path, tmp_path: Path) -> None:
    made = run(data, tmp_path / "run")
    text = (made.path / "run.json").read_text()
    assert json.loads(text)["dataset"]["name"] == "npz:data.npz"
    assert str(tmp_path) not in text
    assert mf.open(made.path).dataset().n_train == 20
    mf.export_trials(made, tmp_path / "trials.npz")
    assert str(tmp_path) not in str(np.load(tmp_path / "trials.npz")["run"])
    mf.import_trials([tmp_path / "trials.npz"], tmp_path / "joined", dataset=f"npz:{data}")
    assert str(tmp_path) not in (tmp_path / "joined" / "run.json").read_text()


def test_on_another_machine_the_data_are_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(data, tmp_path / "run")
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(InputError, match=r"npz:data\.npz.*name them with `dataset`"):
        mf.open(made.path).dataset()
    assert mf.open(made.path).dataset(f"npz:{data}").n_train == 20
    monkeypatch.chdir(data.parent)
    assert mf.open(made.path).dataset().n_train == 20


def test_data_that_moved_are_found_after_a_resume(data: Path, tmp_path: Path) -> None:
    made = run(data, tmp_path / "run")
    data = data.rename(tmp_path / "data.npz")
    with pytest.raises(InputError, match="`dataset`"):
        mf.open(made.path).dataset()
    run(data, tmp_path / "run", trials=6)
    assert mf.open(made.path).dataset().n_train == 20


def test_older_runs_that_say_directories_open_and_go_on(data: Path, tmp_path: Path) -> None:
    made = run(data, tmp_path / "run")
    raw = json.loads((made.path / "run.json").read_text())
    raw["dataset"]["name"] = f"npz:{data}"
    (made.path / "run.json").write_text(json.dumps(raw))
    shutil.rmtree(tmp_path / "cache")
    assert mf.open(made.path).dataset().n_train == 20
    assert len(run(data, tmp_path / "run", trials=6).trials) == 6


def test_a_cache_that_takes_nothing_costs_no_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("MEMFLUENCE_CACHE", os.fspath(tmp_path / "file"))
    assert len(run(data, tmp_path / "run").trials) == 4
