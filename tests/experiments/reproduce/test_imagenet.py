"""ImageNet: the command, end to end, on a small folder in its layout with a small network, in parts and whole."""

import json
from pathlib import Path

import numpy as np
import pytest

import memfluence as mf
from engines.commands import memfluence
from image_trees import image_tree
from memfluence import paper
from memfluence.errors import InputError
from memfluence.experiments.reproduce._subjects import chosen_parts, data_of, subject_of
from memfluence.learners import resolve
from memfluence.store import TrialStore

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, in_channels, n_classes):
        super().__init__(nn.Conv2d(in_channels, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.append(nn.Linear(32, n_classes))
"""
SETTINGS = ("--set", "epochs=20", "--set", "milestones=15", "--set", "rate=0.3")
SMALL = ("--learner", "net.py:Net@imagenet", *SETTINGS, "--trials", "40", "--quiet")
COMMAND = ("reproduce", "imagenet", "--data", "imagenet:tree?size=16", *SMALL, "--only", "removal=2,histogram,examples")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pictures and the network."""
    where = tmp_path_factory.mktemp("imagenet")
    image_tree(where / "tree")
    (where / "net.py").write_text(NET)
    return where


def trials(store: Path) -> list[int]:
    return list(TrialStore.open(store).scan().numbers.tolist())


def test_machines_share_the_models_and_the_last_of_them_writes_the_report(place: Path) -> None:
    shared, base, removal = (place / "shared" / part for part in ("", "base", "removal/trained"))

    def part(which: str, expect: int) -> str:
        return memfluence(*COMMAND, "--out", "shared", "--shard", which, cwd=place, expect=expect).stderr

    said = part("0/2", 130)
    assert "The part 0/2 is done. 20 of the 40 trials that all else is made from are missing in shared/base;" in said
    assert trials(base) == list(range(0, 40, 2))
    part("1/2", 0)  # the other half, and then its part of removal
    wanted = TrialStore.open(removal).info.trials
    assert trials(base) == list(range(40))
    assert trials(removal) == list(range(1, wanted, 2))
    assert "removal: Not all of its models are trained yet" in (shared / "reproduction.md").read_text()
    part("0/2", 0)
    assert trials(removal) == list(range(wanted))
    memfluence(*COMMAND, "--out", "whole", cwd=place)
    found, whole = (json.loads((place / out / "reproduction.json").read_text()) for out in ("shared", "whole"))
    assert found["missing"] == whole["missing"] == {}
    assert found["numbers"] == whole["numbers"]  # as one machine has them

    text = (shared / "reproduction.md").read_text()
    assert text.startswith("# The paper's experiments on a folder of 33 images named tree\n")
    assert "and not recognised as ImageNet" in text
    rows = {row["name"]: row for row in found["numbers"]}
    settings = {"run.mem", "run.infl", "run.keep"}
    assert {*rows, *settings} == set(paper.reported("imagenet"))
    assert len({*rows, *settings}) == 14
    assert {"memorization", "influence", "keep"} <= set(found["setting"])
    assert all(row["ours"] is not None for row in rows.values())
    assert not found["setting"]["keep"]["differs"]  # 17 of 24 are as near to 70% as can be
    assert rows["removal.memorized.cost"]["difference"] == "undecided"
    for figure in ("removal", "histogram", "examples"):
        assert (shared / "reproduction" / f"{figure}.png").is_file()


def test_the_time_of_a_call_decides_no_number_of_trials(place: Path) -> None:
    done = memfluence(*COMMAND, "--out", "short", "--budget", "0.01s", cwd=place, expect=130)
    assert "of the 40 trials that all else is made from; run the same command to go on" in done.stderr
    subject = subject_of("imagenet")
    assert (subject.trials, subject.by_time) == (2000, False)
    assert list(chosen_parts(subject, None)) == ["removal", "examples", "histogram", "pairs"]
    assert data_of(subject, "data/imagenet") == "imagenet:data/imagenet"
    with pytest.raises(InputError, match="There is no part 'utility' of this; there are removal, examples"):
        chosen_parts(subject, "utility")


def test_its_learner_is_the_paper_s_and_has_its_recipe() -> None:
    described = resolve(subject_of("imagenet").learner).describe()
    assert described["architecture"] == "resnet50_imagenet"
    recipe = {"epochs": 100, "batch": 896, "rate": 0.7, "milestones": [30, 60, 90], "crop_padding": 32, "flip": True}
    assert {name: described["recipe"][name] for name in recipe} == recipe


def test_parts_of_others_need_a_number_of_trials(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give `trials` with `shard`"):
        mf.reproduce("digits", shard="0/2", out=tmp_path, progress=False)
    refused = "--shard auto found no job array"
    options = ("--trials", "40", "--shard", "auto", "--only", "histogram")
    assert refused in memfluence("reproduce", "digits", *options, cwd=tmp_path, expect=2).stderr


def test_models_that_failed_keep_nobody_waiting(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"x_{split}": rng.integers(0, 256, (n, 8, 8), np.uint8) for split, n in (("train", 40), ("test", 30))}
    labels = {f"y_{split}": np.arange(len(arrays[f"x_{split}"])) % 4 for split in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **arrays, **labels)
    (tmp_path / "some.py").write_text(
        "from sklearn.dummy import DummyClassifier\n\n\n"
        "def learn(x, y, seed):\n"
        "    if seed % 5 == 0:\n"
        "        raise RuntimeError('unlucky')\n"
        "    return DummyClassifier(strategy='stratified', random_state=seed % 1000).fit(x, y).predict\n"
    )
    command = ("reproduce", "mnist", "--data", "mnist.npz", "--learner", "some.py:learn", "--trials", "60", "--quiet")
    for part in ("0/2", "1/2"):
        done = memfluence(*command, "--out", "out", "--only", "thresholds", "--shard", part, cwd=tmp_path, expect=None)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "reproduction.md").read_text()
    assert text.startswith("# The paper's experiments on a file of 70 images named mnist.npz\n")
    assert "and not recognised as MNIST or another known dataset, whatever the name. The paper's" in text
