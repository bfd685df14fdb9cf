"""Images in files through a network: as a stream and as a table, with any number of decoding workers, bit for bit."""

import json
import multiprocessing
import os
import pickle
import re
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import EVERYTHING, outcomes, pictures, random_trials, results, same_bits
from sklearn.dummy import DummyClassifier

import memfluence
from image_trees import CLASSES, image_tree
from memfluence.cli import main
from memfluence.datasets import Dataset, load
from memfluence.errors import DatasetError, LearnerError
from memfluence.learners import resolve
from memfluence.learners.nets import images
from memfluence.learners.nets.images import ImageData, StreamedImages, image_source, scaling
from memfluence.learners.nets.trainer import Trainer
from memfluence.learners.network import ImageLoading, Network
from memfluence.learners.recipes import Recipe
from memfluence.records import Failure, Outcome

CPU = torch.device("cpu")
# 3 batches an epoch from 17 kept images: 7, 7 and 3.
PLAIN = Recipe(epochs=2, batch=7, rate=0.05, crop_padding=3, flip=True, partial_batches=True)
SIZE = 12
TRIALS = random_trials([17, 17], n_train=24)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_tree(tmp_path_factory.mktemp("imagenet"))


@pytest.fixture(scope="module")
def files(tree: Path) -> Dataset:
    return load(f"imagenet:{tree}?size={SIZE}")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images a piece and five a block, so that batches have several of both and a rest."""
    monkeypatch.setattr(images, "_PIECE_BYTES", 2 * SIZE * SIZE * 3)
    monkeypatch.setattr(images, "_EVALUATED_AT_ONCE", 5)


def learner(way: str, workers: int = 0, **settings: Any) -> Network:
    options = {"width": 2, "whiten": settings.pop("whiten", False)}
    return Network("small", "resnet9", replace(PLAIN, **settings), options, ImageLoading(workers, way))


def source(dataset: Dataset, way: str, workers: int = 0, **settings: Any) -> Any:
    loading = ImageLoading(workers, way)
    return image_source(dataset, replace(PLAIN, **settings), CPU, batch=7, flat=False, loading=loading)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"crop_padding": 0, "flip": False},
        {"padding_mode": "reflect", "partial_batches": False},
        {"normalization": "subset"},
        {"normalization": "dataset"},
        {"alternate_flips": True},
        {"whiten": True},
    ],
)
def test_a_stream_trains_the_models_of_a_table(files: Dataset, settings: dict[str, Any]) -> None:
    """And of the same pixels as an array in memory, which is what the trainer has always had."""
    in_memory = replace(files, x_train=np.asarray(files.x_train), x_test=np.asarray(files.x_test))
    expected = outcomes(learner("auto", **settings), in_memory, TRIALS)
    for way in ("table", "stream"):
        found = outcomes(learner(way, **settings), files, TRIALS)
        assert all(map(same_bits, found, expected))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", ["table", "stream"])
def test_workers_change_nothing(files: Dataset, way: str, workers: int) -> None:
    expected = outcomes(learner(way), files, TRIALS[:1])[0]
    assert same_bits(outcomes(learner(way, workers), files, TRIALS[:1])[0], expected)


def test_a_table_where_it_fits(files: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded and plain training images and the test images must fit in half of the free memory."""
    needed = 24 * 3 * (SIZE**2 + (SIZE + 6) ** 2) + 9 * 3 * SIZE**2
    for free, kind in ((2 * needed, ImageData), (2 * needed - 2, StreamedImages)):
        monkeypatch.setattr(images.os, "sysconf", lambda name, free=free: free if "AVPHYS" in name else 1)
        assert isinstance(source(files, "auto"), kind)
    monkeypatch.undo()
    assert isinstance(source(files, "auto"), ImageData)
    assert isinstance(source(files, "stream"), StreamedImages)


def test_both_sources_give_the_same_images(files: Dataset) -> None:
    table, stream = source(files, "table"), source(files, "stream", workers=2)
    assert (table.size, table.channels, table.value_range) == (stream.size, stream.channels, stream.value_range)
    assert torch.equal(table.labels, stream.labels)
    for split, many in (("train", 24), ("test", 9)):
        blocks = [block.clone() for block in stream.blocks(split)]
        assert [len(block) for block in blocks] == [5] * (many // 5) + [many % 5]
        assert torch.equal(torch.cat(blocks), torch.cat(list(table.blocks(split))))
        assert np.array_equal(torch.cat(blocks).numpy(), np.asarray(getattr(files, f"x_{split}")))
    for normalization in ("fixed", "unit", "none", "subset", "dataset"):
        recipe, kept = replace(PLAIN, normalization=normalization), torch.tensor([3, 20, 4, 11, 9, 8])
        found, expected = scaling(stream, recipe, kept), scaling(table, recipe, kept)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_begins_at_any_step(files: Dataset, workers: int) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.permutation(24)[:width] for width in (7, 7, 3, 7, 1)]
    stream, pixels = source(files, "stream", workers, crop_padding=0), np.asarray(files.x_train)
    for first in (0, 3):
        seen = []
        for width in stream.steps(rows[first:]):
            padded, own = stream.batch(torch.zeros(width))
            seen.append(padded[own].numpy().copy())
        assert [len(batch) for batch in seen] == [len(batch) for batch in rows[first:]]
        assert all(np.array_equal(batch, pixels[wanted]) for batch, wanted in zip(seen, rows[first:]))


def test_a_stream_that_is_left_ends_its_workers(files: Dataset) -> None:
    before = set(multiprocessing.active_children())
    steps = source(files, "stream", 2).steps([np.arange(7)] * 50)
    next(steps)
    started = set(multiprocessing.active_children()) - before
    assert len(started) == 2
    steps.close()
    for child in started:
        child.join(60)
    assert all(child.exitcode is not None for child in started)


def test_the_global_generator_is_left_alone(files: Dataset) -> None:
    before = torch.get_rng_state()
    outcomes(learner("stream", 1), files, TRIALS[:1])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", ["table", "stream"])
def test_a_broken_file_ends_the_run_with_its_path(tmp_path: Path, way: str, workers: int) -> None:
    broken = image_tree(tmp_path) / "train" / CLASSES[2] / f"{CLASSES[2]}_5.JPEG"
    broken.write_bytes(b"no image")
    data = load(f"imagenet:{tmp_path}?size={SIZE}")
    before = set(multiprocessing.active_children())
    with pytest.raises(DatasetError, match=f"{re.escape(str(broken))} cannot be decoded") as caught:
        results(learner(way, workers), data, TRIALS)
    assert "\n" not in str(caught.value)
    assert set(multiprocessing.active_children()) <= before


def test_a_step_that_fails_ends_the_workers_and_spoils_nothing(files: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    step, broken = Trainer._step, iter([False, True] + [False] * 100)

    def breaks_once(trainer: Trainer, width: int) -> None:
        if next(broken):
            raise ValueError("no step")
        step(trainer, width)

    expected = outcomes(learner("stream"), files, TRIALS)[1]
    before = set(multiprocessing.active_children())
    monkeypatch.setattr(Trainer, "_step", breaks_once)
    found = iter(learner("stream", 2).train(files, TRIALS, record=EVERYTHING, device="cpu"))
    failure = next(found)
    assert isinstance(failure, Failure)
    assert failure.message == "ValueError: no step"
    assert set(multiprocessing.active_children()) <= before
    outcome = next(found)
    assert isinstance(outcome, Outcome)
    assert same_bits(outcome, expected)


class OneCheckpoint:
    """Keeps what was saved last."""

    every = 1e9

    def __init__(self) -> None:
        self.content: bytes | None = None

    def load(self, trial: int, made_with: Mapping[str, str]) -> bytes | None:
        return self.content

    def save(self, trial: int, made_with: Mapping[str, str], content: bytes, fraction: float) -> None:
        self.content = content


@pytest.mark.parametrize("stop_after", [1, 4])
def test_a_trial_that_was_stopped_goes_on_with_its_stream(
    files: Dataset, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C within a step; what comes after has the rest of the steps, not the first ones again."""
    step, steps = Trainer._step, list[int]()

    def interrupted(trainer: Trainer, width: int) -> None:
        step(trainer, width)
        steps.append(width)
        if len(steps) == stop_after:
            signal.raise_signal(signal.SIGINT)

    expected = outcomes(learner("stream"), files, TRIALS[:1])[0]
    before, place = set(multiprocessing.active_children()), OneCheckpoint()
    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcomes(learner("stream", 2).resuming(place, lambda part: None), files, TRIALS[:1])
    assert len(steps) == stop_after
    assert set(multiprocessing.active_children()) <= before
    resumed = outcomes(learner("stream", 1).resuming(place, lambda part: None), files, TRIALS[:1])[0]
    assert steps == [7, 7, 3, 7, 7, 3]
    assert same_bits(resumed, expected)


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_workers(files: Dataset) -> None:
    steps = source(files, "stream", 2).steps([np.arange(7)] * 4)
    before = set(multiprocessing.active_children())
    next(steps)
    started = set(multiprocessing.active_children()) - before
    assert all(os.getpgid(child.pid or 0) != os.getpgrp() for child in started)
    assert list(steps) == [7, 7, 7]


def test_copies_to_a_gpu_put_a_batch_together(files: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stream and an event that do nothing, on the CPU: what the steps read is the batch, whole and in order."""

    class Nothing:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Nothing())
    stream, pixels = source(files, "stream"), np.asarray(files.x_train)
    stream._copying, stream._moved, stream._next = Nothing(), Nothing(), torch.zeros_like(stream._images)
    for rows in (np.array([4, 20, 7, 1, 0]), np.array([9]), np.arange(7)):
        (pieces,) = images.decoded(files.x_train, [rows], 0)
        assert len(pieces) == -(-len(rows) // 2)
        assert stream._copied(pieces) == len(rows)
        assert np.array_equal(stream._images[: len(rows)].numpy(), pixels[rows])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", [{}, {"padding_mode": "reflect", "normalization": "subset"}])
def test_a_gpu_trains_the_same_models_from_a_stream(files: Dataset, settings: dict[str, Any]) -> None:
    """With a captured step, copies that run beside it, and pinned memory."""

    def trained(way: str, workers: int) -> list[Any]:
        return list(learner(way, workers, **settings).train(files, TRIALS, record=EVERYTHING, device="cuda"))

    expected = trained("table", 0)
    for workers in (0, 2):
        assert all(map(same_bits, trained("stream", workers), expected))


def test_what_cannot_be_streamed(files: Dataset) -> None:
    with pytest.raises(LearnerError, match="pictures is in memory already; images=stream is for images in files"):
        results(learner("stream"), pictures(), random_trials([17], n_train=30))
    with pytest.raises(LearnerError, match=r"needs a table of all images; use `settings={'images': 'table'}`"):
        results(replace(learner("stream"), architecture="linear", options={}), files, TRIALS)
    with pytest.raises(LearnerError, match=r"crop_padding=12 cannot be mirrored in images of \(12, 12\) pixels"):
        source(files, "stream", crop_padding=12, padding_mode="reflect")
    flat = replace(learner("auto", crop_padding=0, flip=False), architecture="linear", options={})
    assert len(outcomes(flat, files, TRIALS)) == 2


def nearest(x: Any, y: np.ndarray, seed: int) -> Any:
    """The class of the nearest training image."""
    flat = np.asarray(x, dtype=float).reshape(len(x), -1)

    def predict(images: Any) -> np.ndarray:
        others = images.reshape(len(images), -1).astype(float)
        return y[((others[:, None] - flat[None]) ** 2).sum(-1).argmin(1)]

    return predict


@pytest.mark.parametrize(
    "other", ["mlp", nearest, DummyClassifier(strategy="stratified")], ids=["mlp", "nearest", "dummy"]
)
def test_other_learners_get_arrays(files: Dataset, other: Any) -> None:
    in_memory = replace(files, x_train=np.asarray(files.x_train), x_test=np.asarray(files.x_test))
    learner = resolve(other, {"epochs": "2"} if other == "mlp" else None)
    for found, expected in zip(outcomes(learner, files, TRIALS, ()), outcomes(learner, in_memory, TRIALS, ())):
        assert same_bits(found, expected)


def test_settings_of_loading_are_no_part_of_the_identity() -> None:
    plain = resolve("resnet50@imagenet")
    other = resolve("resnet50@imagenet", {"decode_workers": "3", "images": "stream", "epochs": "95"})
    assert isinstance(other, Network)
    assert other.loading == ImageLoading(3, "stream")
    assert other.recipe.epochs == 95
    assert pickle.loads(pickle.dumps(other)).loading == other.loading
    described = other.describe()
    assert "loading" not in described
    assert described | {"recipe": {}} == plain.describe() | {"recipe": {}}
    for setting, message in (
        ({"decode_workers": "-2"}, "'decode_workers' of a network must be an integer of at least -1; got -2"),
        ({"decode_workers": "many"}, "'decode_workers' of a network must be an integer; got 'many'"),
        ({"images": "disk"}, "'images' of a network must be one of auto, table, stream; got 'disk'"),
    ):
        with pytest.raises(LearnerError, match=message):
            resolve("resnet50@imagenet", setting)


def test_the_papers_network_trains_through_a_stream(tree: Path, tmp_path: Path) -> None:
    """ResNet-50 for ImageNet on 32 x 32 pixels, from Python, with workers."""
    recipe = replace(PLAIN, epochs=1, batch=8, crop_padding=32, partial_batches=False)
    network = Network("resnet50@imagenet", "resnet50_imagenet", recipe, {}, ImageLoading(2, "stream"))
    run = memfluence.run(f"imagenet:{tree}?size=32", learner=network, trials=1, out=tmp_path / "run", device="cpu")
    assert run.status()["trials"] == 1
    assert len(run.memorization()) == 24


def test_the_command_line_from_files_to_a_report(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = f"folder:{tree}?lazy=true&size=8", str(tmp_path / "run")
    learner = ["--learner", "resnet9@fast", "--set", "epochs=1", "--set", "batch=8", "--set", "optimizer=sgd"]

    def command(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return json.loads(printed.out)

    found = command("plan", data, *learner, "--no-pilot", "--trials", "2")
    assert found["decoded_bytes"] == (24 + 9) * 8 * 8 * 3
    options = ["--device", "cpu", "--trials", "2", "--out", run]
    command("run", data, *learner, "--set", "images=stream", "--set", "decode_workers=1", *options)
    status = command("run", data, *learner, "--set", "images=table", *options[:3], "3", *options[4:])
    assert status["trials"] == 3
    command("report", run, "--out", str(tmp_path / "site"))
    (inputs,) = (tmp_path / "site").glob("data-*/train-inputs-0.js")
    assert f"train/{CLASSES[0]}/" in inputs.read_text()
