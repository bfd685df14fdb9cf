"""Images in files through modules of the user's and groups of small networks: what a stream trains, a table trains."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import outcomes, random_trials, same_bits
from test_streaming import PLAIN, SIZE, TRIALS, OneCheckpoint, files, small_pieces, tree
from torch import nn
from user_learners import torch_logits

import memfluence as mf
from memfluence.cli import main
from memfluence.datasets import Dataset
from memfluence.learners import resolve
from memfluence.learners.nets.group_trainer import GroupTrainer
from memfluence.learners.nets.images import ImageData, StreamedImages
from memfluence.learners.nets.trainer import Trainer
from memfluence.learners.network import ImageLoading, Network

__all__ = ["files", "small_pieces", "tree"]  # fixtures

NET_FILE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, in_channels, n_classes, width=4):
        super().__init__(nn.Conv2d(in_channels, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.append(nn.Dropout(0.3)).append(nn.Linear(4 * width, n_classes))
"""


def dropping(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Flatten()).append(
        nn.Linear(4 * (SIZE - 2) ** 2, n_classes)
    )


def normalized(in_channels: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(in_channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()).append(
        nn.Linear(4 * (SIZE - 2) ** 2, n_classes)
    )


def source_of(learner: Network) -> Any:
    (trainer,) = learner._trainers.values()
    return trainer._data


def in_memory(dataset: Dataset) -> Dataset:
    return replace(dataset, x_train=np.asarray(dataset.x_train), x_test=np.asarray(dataset.x_test))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"normalization": "subset", "alternate_flips": True}])
def test_a_module_with_dropout(files: Dataset, settings: dict[str, Any], workers: int) -> None:
    expected = outcomes(mf.network(dropping, PLAIN, **settings), in_memory(files), TRIALS)
    for way, kind in (("table", ImageData), ("stream", StreamedImages)):
        learner = mf.network(dropping, PLAIN, images=way, decode_workers=workers, **settings)
        assert all(map(same_bits, outcomes(learner, files, TRIALS), expected))
        assert isinstance(source_of(learner), kind)


@pytest.mark.parametrize("stop_after", [1, 4])
def test_a_module_goes_on_with_its_stream_and_its_dropout(
    files: Dataset, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = Trainer._step, list[int]()

    def interrupted(trainer: Trainer, width: int) -> None:
        step(trainer, width)
        steps.append(width)
        if len(steps) == stop_after:
            signal.raise_signal(signal.SIGINT)

    learner = mf.network(dropping, PLAIN, images="stream", decode_workers=0)
    expected, place = outcomes(learner, files, TRIALS[:1])[0], OneCheckpoint()
    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcomes(learner.resuming(place, lambda part: None), files, TRIALS[:1])
    again = mf.network(dropping, PLAIN, images="stream", decode_workers=2)
    resumed = outcomes(again.resuming(place, lambda part: None), files, TRIALS[:1])[0]
    assert steps == [7, 7, 3, 7, 7, 3]
    assert same_bits(resumed, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"normalization": "subset", "padding_mode": "reflect"}])
def test_a_group(files: Dataset, settings: dict[str, Any], workers: int) -> None:
    """Several models in a step, each with its own images; blocks of 5 images are scored in parts."""
    trials = random_trials([17, 17, 17], n_train=24)
    expected = outcomes(mf.network(normalized, PLAIN, group=3, **settings), in_memory(files), trials)
    for way, kind in (("table", ImageData), ("stream", StreamedImages)):
        learner = mf.network(normalized, PLAIN, group=3, images=way, decode_workers=workers, **settings)
        assert all(map(same_bits, outcomes(learner, files, trials), expected))
        assert isinstance(source_of(learner), kind)
    (trainer,) = learner._trainers.values()
    assert isinstance(trainer, GroupTrainer)


def test_a_function_with_a_device_gets_the_decoded_images(files: Dataset) -> None:
    learner = resolve(torch_logits)
    for found, expected in zip(outcomes(learner, files, TRIALS, ()), outcomes(learner, in_memory(files), TRIALS, ())):
        assert same_bits(found, expected)


def test_a_compilers_trial_decodes_nothing(files: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is predicted before the first step is as large as all blocks to come: 24 and 9 images, 5 at a time."""
    learner = mf.network(dropping, PLAIN, images="stream", decode_workers=0)
    trainer = learner._trainer(files, 17, torch.device("cpu"))
    monkeypatch.setattr(trainer._data, "blocks", lambda split: pytest.fail("images are decoded"))
    sizes = []
    monkeypatch.setattr(trainer, "_predict", lambda images: sizes.append(tuple(images.shape)))
    trainer._predict_nothing()
    assert sizes == [(5, 3, SIZE, SIZE)]


def test_settings_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET_FILE)
    name = f"{tmp_path / 'net.py'}:Net@fast"
    given = {"images": "stream", "decode_workers": "2", "group": "3", "width": "5", "epochs": "2"}
    found: Any = resolve(name, given)
    assert (found.learner.loading, found.learner.group) == (ImageLoading(2, "stream"), 3)
    assert found.describe() == resolve(name, {"width": "5", "epochs": "2"}).describe()


def test_the_command_line(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(NET_FILE)
    settings = ["epochs=2", "batch=8", "optimizer=sgd", "rate=0.05", "width=3"]
    scores = []
    for way in (["images=table"], ["images=stream", "decode_workers=2"]):
        words = ["run", f"imagenet:{tree}?size=8", "--learner", f"{tmp_path / 'net.py'}:Net@fast", "--device", "cpu"]
        out = str(tmp_path / way[0])
        with pytest.raises(SystemExit) as ended:
            main([*words, *(f"--set={one}" for one in settings + way), "--trials", "3", "--out", out, "--json"])
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        assert json.loads(printed.out)["trials"] == 3
        scores.append(mf.open(out).memorization())
    assert scores[0].equals(scores[1])
