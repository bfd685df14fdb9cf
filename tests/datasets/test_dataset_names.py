"""`load`: names, places, options."""

import subprocess
import sys

import numpy as np
import pytest

from memfluence.datasets import load, short_name
from memfluence.errors import DatasetError


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "some data.npz"
    np.savez(path, x_train=np.eye(3), y_train=[0, 1, 0], x_test=np.eye(3), y_test=[0, 1, 1])
    return path


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "digitz",
            r"'digitz' is not a dataset \(did you mean 'digits'\?\); the datasets are digits, longtail, csv:FILE",
        ),
        ("cifar:/x", "did you mean 'cifar1"),
        ("MNIST:/x", "did you mean 'mnist'"),
        ("", "is not a dataset"),
        ("data.npz", "did you mean 'npz:data.npz'"),
        ("digits:here", "digits takes no path"),
        ("npz:", "'npz:' does not say where the data are; write it as 'npz:FILE'"),
        ("mnist", "write it as 'mnist:DIR'"),
        ("imagenet:", "write it as .imagenet:DIR."),
        ("imagenet:/x?size=300&shorter=200", "'shorter' must be between 300 and"),
        ("folder:/x?lazy=maybe", "'lazy' must be true or false; got 'maybe'"),
        ("folder:/x?lazy=true", "lazy=true needs a size"),
        ("digits?seed=1", "digits has no option 'seed'; its options: none"),
        ("longtail?n_trian=60", r"no option 'n_trian' \(did you mean 'n_train'\?\); its options: n_train, n_test"),
        ("longtail?n_train=6.5", "'n_train' must be an integer; got '6.5'"),
        ("longtail?flip=some", "'flip' must be a number; got 'some'"),
        ("longtail?flip", "name=value, joined by '&'; got 'flip'"),
        ("longtail?flip=", "name=value"),
        ("longtail?flip=0&flip=1", "'flip' is given twice"),
        ("folder:/x?size=0", "'size' must be between 1 and"),
    ],
)
def test_faulty_names(spec, message):
    with pytest.raises(DatasetError, match=message) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_a_folder_is_recognized(tmp_path):
    with pytest.raises(DatasetError, match="did you mean 'folder:"):
        load(str(tmp_path))


def test_the_name_loads_the_same_data_from_elsewhere(npz, tmp_path, monkeypatch):
    monkeypatch.chdir(npz.parent)
    dataset = load("npz:some data.npz")
    assert dataset.name == f"npz:{npz}"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(dataset.name).fingerprint == dataset.fingerprint


def test_a_path_with_a_question_mark(npz, tmp_path):
    odd = npz.rename(tmp_path / "what?.npz")
    dataset = load(f"npz:{odd}?")
    assert dataset.name == f"npz:{odd}?"
    assert load(dataset.name).n_train == 3
    with pytest.raises(DatasetError, match="end the name with another"):
        load(f"npz:{odd}")


def test_home_is_expanded(npz, monkeypatch):
    monkeypatch.setenv("HOME", str(npz.parent))
    assert load("npz:~/some data.npz").name == f"npz:{npz}"


def test_options_by_keyword_become_part_of_the_name():
    dataset = load("longtail?n_train=40", n_test=20, flip=0.25)
    assert dataset.name == "longtail?n_train=40&n_test=20&flip=0.25"
    assert load(dataset.name).fingerprint == dataset.fingerprint
    with pytest.raises(DatasetError, match="in the name and by keyword"):
        load("longtail?n_train=40", n_train=40)


def test_missing_file(tmp_path):
    with pytest.raises(DatasetError, match="does not exist; give the path of the data file"):
        load(f"npz:{tmp_path}/none.npz")
    with pytest.raises(DatasetError, match="is a folder, not a file"):
        load(f"npz:{tmp_path}")
    for scheme in ("mnist", "cifar10", "cifar100", "folder", "imagenet"):
        with pytest.raises(DatasetError, match=f"{tmp_path}/none does not exist"):
            load(f"{scheme}:{tmp_path}/none")


def test_importing_loads_no_heavy_library():
    code = (
        "import sys, memfluence.datasets;"
        "print([m for m in ('pandas', 'sklearn', 'scipy', 'PIL', 'torch', 'datasets') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("digits", "digits"),
        ("longtail?flip=0.1", "longtail"),
        ("npz:/home/me/data.npz", "data.npz"),
        ("cifar100:/data/cifar", "cifar100"),
        ("mnist:/data/fashion", "fashion"),
        ("imagenet:photos?size=64", "photos"),
        ("hf:user/set?image=img", "set"),
        ("labels of trials.npz", "trials.npz"),
        ("arrays", ""),
    ],
)
def test_short_names(dataset: str, name: str) -> None:
    assert short_name(dataset) == name
