"""Networks with a recipe: the contract on pictures, a plain twin in PyTorch, presets, and what they fall back to."""

import importlib.util
import json
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import EVERYTHING, outcomes, pictures, random_trials, results, same_bits, trial_of
from torch import nn

from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import MLP, Learner, network, resolve
from memfluence.learners.nets import images as images_module
from memfluence.learners.nets import trainer as trainer_module
from memfluence.learners.nets.architectures import ARCHITECTURES, build
from memfluence.learners.nets.device import kernels
from memfluence.learners.nets.fresh_models import full_precision_head
from memfluence.learners.nets.images import load_images
from memfluence.learners.nets.trainer import Trainer
from memfluence.learners.network import Network
from memfluence.learners.recipes import LEARNER_PRESETS, PRESETS, Recipe, rates
from memfluence.records import Failure, Outcome, Trial
from memfluence.seeding import integer_seed

CPU = torch.device("cpu")
HAS_GPU = torch.cuda.is_available()
# A short training that uses every part of a recipe: 2 batches of 9 an epoch from 20 kept pictures, 2 left over.
PLAIN = Recipe(
    epochs=3,
    batch=9,
    rate=0.05,
    nesterov=True,
    weight_decay=1e-3,
    warmup=0.2,
    crop_padding=2,
    padding_mode="reflect",
    flip=True,
    label_smoothing=0.1,
)
# Float32 rounding over some ten steps, found to be 1e-6 at most; the logits are of the order of 0.1. Batches of a few
# pictures would need more: the last normalization sees one pixel of each, and divides by what differs between them.
TOLERANCE: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}


def small(**settings: Any) -> Network:
    return Network("small", "resnet9", replace(PLAIN, **settings), {"width": 4})


def kept_trials(*sizes: int) -> list[Trial]:
    return random_trials(sizes, n_train=30)


def scores(learner: Network, dataset: Dataset, trials: list[Trial], device: str = "cpu") -> dict[int, np.ndarray]:
    """The float32 logits (n_train + n_test, n_classes) that a network makes its outcomes from, by trial number."""
    found: dict[int, np.ndarray] = {}
    original = network.outcome_from

    def spy(trial: Trial, dataset: Dataset, train: np.ndarray, test: np.ndarray, **rest: Any) -> Outcome:
        found[trial.number] = np.concatenate([train, test])
        return original(trial, dataset, train, test, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "outcome_from", spy)
        trained = list(learner.train(dataset, trials, record=("margin",), device=device))
    assert not [one.traceback for one in trained if isinstance(one, Failure)]
    return found


# The contract, on pictures. `test_learner_contract` has the rest of it with a linear network on features.


def test_one_result_per_trial_in_order() -> None:
    data, trials = pictures(), kept_trials(20, 20, 19, 5, 20)
    trials[1] = replace(trials[1], number=70, kind=1)
    assert isinstance(small(), Learner)
    assert small().group_size(data, "cpu") == small().group_size(data, "auto") == 1
    found = outcomes(small(), data, trials)
    assert [(one.trial, one.kind) for one in found] == [(trial.number, trial.kind) for trial in trials]
    for outcome, trial in zip(found, trials):
        assert np.array_equal(outcome.mask, trial.mask)
        assert (outcome.train_correct.shape, outcome.test_correct.shape) == ((30,), (14,))
        assert outcome.device == "cpu"
        assert outcome.seconds >= 0


def test_results_come_one_after_another() -> None:
    stream = small().train(pictures(), kept_trials(20, 20), record=(), device="cpu")
    assert next(stream).trial == 0
    assert next(stream).trial == 1


@pytest.mark.parametrize("settings", [{}, {"normalization": "subset", "optimizer": "muon", "partial_batches": True}])
def test_same_bits_again_and_in_a_fresh_network_and_in_any_order(settings: dict[str, Any]) -> None:
    learner, data, trials = small(**settings), pictures(), kept_trials(20, 20, 20)
    first = {one.trial: one for one in outcomes(learner, data, trials)}
    again = {one.trial: one for one in outcomes(learner, data, trials[::-1])}
    for trial in trials:
        (fresh,) = outcomes(small(**settings), data, [trial])
        assert same_bits(first[trial.number], again[trial.number])
        assert same_bits(first[trial.number], fresh)
    assert not same_bits(first[0], first[1])


def test_trials_of_another_size_or_of_other_data_leave_no_trace() -> None:
    learner, data, other = small(), pictures(), pictures(seed=1)
    trials = kept_trials(20, 19, 20)
    found = outcomes(learner, data, trials)
    assert len(learner._trainers) == 1
    elsewhere = outcomes(learner, other, [trials[0]])
    assert same_bits(elsewhere[0], outcomes(small(), other, [trials[0]])[0])
    for trial, outcome in zip(trials, found):
        assert same_bits(outcome, outcomes(learner, data, [trial])[0])


def test_one_trainer_serves_all_trials_that_fill_a_batch() -> None:
    """Of 9 examples; one of 8 makes a smaller batch."""
    learner, data = small(), pictures()
    outcomes(learner, data, kept_trials(20))
    (before,) = learner._trainers.values()
    outcomes(learner, data, kept_trials(20, 19, 9))
    assert list(learner._trainers.values()) == [before]
    (shared,), (alone,) = outcomes(learner, data, kept_trials(19)), outcomes(small(), data, kept_trials(19))
    assert same_bits(shared, alone)
    outcomes(learner, data, kept_trials(8))
    assert list(learner._trainers.values()) != [before]


@pytest.mark.parametrize("optimizer", ["sgd", "muon"])
def test_nothing_of_the_last_model_is_left(optimizer: str) -> None:
    """Parameters, batch-norm statistics, momenta, counters and tables are spoiled; the next trial is none the worse."""
    learner, data, trials = small(optimizer=optimizer), pictures(), kept_trials(20, 20)
    expected = outcomes(learner, data, [trials[1]])
    outcomes(learner, data, [trials[0]])
    (trainer,) = learner._trainers.values()
    with torch.no_grad():
        for value in trainer._model.state_dict().values():
            value.fill_(torch.nan if value.is_floating_point() else 1000)
    for buffer in (*trainer._optimizer._momenta, *trainer._optimizer._velocities):
        buffer.fill_(torch.nan)
    trainer._position.fill_(3)
    for table in (trainer._order, trainer._crops, trainer._shift, trainer._factor):
        table.fill_(2)
    assert same_bits(outcomes(learner, data, [trials[1]])[0], expected[0])


def test_the_global_generator_is_left_alone() -> None:
    data, trials = pictures(), kept_trials(20)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = outcomes(small(), data, trials)[0]
        drawn = torch.rand(3)
        torch.manual_seed(1)
        assert torch.equal(torch.rand(3), drawn)
        assert same_bits(first, outcomes(small(), data, trials)[0])


def changed_held_out(data: Dataset, trial: Trial) -> tuple[Dataset, np.ndarray]:
    """The data with wild pixels and other labels in all that the trial leaves out; and which examples are as before."""
    x_train, y_train = data.x_train.copy(), data.y_train.copy()
    x_train[~trial.mask] = 255 * (x_train[~trial.mask] < 128)
    y_train[~trial.mask] = (y_train[~trial.mask] + 1) % data.n_classes
    return replace(data, x_train=x_train, y_train=y_train), trial.mask


@pytest.mark.parametrize("normalization", ["fixed", "subset", "unit", "none"])
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
def test_nothing_of_a_held_out_example_reaches_the_model(normalization: str, padding_mode: str) -> None:
    learner = small(normalization=normalization, padding_mode=padding_mode, rate=1e-3)
    data, (trial,) = pictures(), kept_trials(20)
    changed, same = changed_held_out(data, trial)
    before, after = (outcomes(learner, one, [trial])[0] for one in (data, changed))
    for name in before.extras:
        rows = same if name.startswith("train") else slice(None)
        assert before.extras[name][rows].tobytes() == after.extras[name][rows].tobytes()


def test_nothing_of_a_held_out_example_reaches_a_whitening_layer() -> None:
    data, (trial,) = pictures(), kept_trials(20)
    changed, same = changed_held_out(data, trial)
    learner = Network("small", "resnet9", PLAIN, {"width": 4, "whiten": True})
    before, after = (outcomes(learner, one, [trial])[0] for one in (data, changed))
    assert before.extras["train_margin"][same].tobytes() == after.extras["train_margin"][same].tobytes()
    assert before.extras["test_margin"].tobytes() == after.extras["test_margin"].tobytes()
    trainer, other = make_trainer({"width": 4, "whiten": True}), replace(trial, mask=np.roll(trial.mask, 1))
    filters = []
    for one in (trial, other):
        trainer._fill_tables(one)
        trainer._initialize(one)
        filters.append(next(trainer._model.buffers()).clone())
    assert not torch.equal(*filters)  # each trial's own


def test_alternating_flips_mirror_an_image_in_every_other_epoch() -> None:
    (trial,) = kept_trials(20)
    trainer = make_trainer(epochs=4, batch=10, alternate_flips=True)
    trainer._fill_tables(trial)
    order = trainer._order[:8].reshape(4, 20).numpy()  # (epochs, kept)
    flips = trainer._crops[:8, 2].reshape(4, 20).numpy()
    by_image = np.take_along_axis(flips, order.argsort(axis=1), axis=1)  # (epochs, kept), one column an image
    assert np.array_equal(by_image[1:], 1 - by_image[:-1])
    assert 0 < by_image[0].sum() < 20  # some begin flipped, some not


def test_scaling_by_the_dataset_leaks_as_it_says() -> None:
    data, (trial,) = pictures(), kept_trials(20)
    changed, same = changed_held_out(data, trial)
    before, after = (outcomes(small(normalization="dataset"), one, [trial])[0] for one in (data, changed))
    assert not np.array_equal(before.extras["train_margin"][same], after.extras["train_margin"][same])
    assert not np.array_equal(before.extras["test_margin"], after.extras["test_margin"])


def test_pictures_are_learned_and_flipped_labels_are_memorized() -> None:
    data, trials = pictures(), kept_trials(24, 24)
    y_train = data.y_train.copy()
    y_train[::6] = (y_train[::6] + 1) % 3
    learner = small(epochs=25, flip=False, crop_padding=0, label_smoothing=0.0)
    for outcome in outcomes(learner, replace(data, y_train=y_train), trials, record=()):
        assert outcome.train_correct[outcome.mask].mean() > 0.95
        assert outcome.test_correct.mean() > 0.6  # chance is 1/3


# A plain twin.


def twin_scores(learner: Network, dataset: Dataset, trial: Trial) -> np.ndarray:
    """Logits (n_train + n_test, n_classes) of one model, trained as a torch user would train it."""
    recipe, kept = learner.recipe, trial.kept
    raw = np.concatenate([dataset.x_train, dataset.x_test]).astype(np.float64)  # (n, height, width, channels)
    if recipe.normalization == "subset":
        shift, scale = raw[kept].mean(axis=(0, 1, 2)), raw[kept].std(axis=(0, 1, 2))
    else:
        shift, scale = 127.5, 127.5
    p, (height, width) = recipe.crop_padding, raw.shape[1:3]
    mode: Any = {"zeros": "constant", "reflect": "reflect"}[recipe.padding_mode]
    padded = np.pad(raw, ((0, 0), (p, p), (p, p), (0, 0)), mode=mode)

    def inputs(images: np.ndarray) -> torch.Tensor:
        return torch.tensor(((images - shift) / scale).transpose(0, 3, 1, 2), dtype=torch.float32)

    model = build(learner.architecture, raw.shape[3], dataset.n_classes, **learner.options)
    model = model.to(memory_format=torch.channels_last)  # older versions of torch draw in the order of the memory
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer_seed(trial.root, "init", trial.number))
        for layer in model.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=1.0,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
    batch = min(recipe.batch, len(kept))
    epochs = []  # the batches of each
    order = trial.generator("order")
    for _ in range(recipe.epochs):
        rows = order.permutation(kept)
        batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
        epochs.append([one for one in batches if len(one) == batch or recipe.partial_batches])
    steps = [rows for batches in epochs for rows in batches]
    augment = trial.generator("augment")
    corners = (
        augment.integers(0, 2 * p + 1, (len(steps), 2, batch), np.uint8) if p else np.zeros((len(steps), 2, batch))
    )
    flips = augment.integers(0, 2, (len(steps), batch), np.uint8) if recipe.flip else np.zeros((len(steps), batch))
    model.train()
    for step, (rows, rate) in enumerate(zip(steps, rates(recipe, len(epochs[0])), strict=True)):
        images = []
        for position, row in enumerate(rows):
            top, left = corners[step, :, position].astype(int)
            image = padded[row, top : top + height, left : left + width]
            images.append(image[:, ::-1] if flips[step, position] else image)
        labels = torch.from_numpy(dataset.y_train[rows])
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(inputs(np.stack(images))), labels, label_smoothing=recipe.label_smoothing
        )
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found: np.ndarray = model.eval()(inputs(raw)).numpy()
    return found


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        pytest.param({}, 20, id="all parts of a recipe"),
        pytest.param({"batch": 12, "partial_batches": True}, 20, id="a smaller batch at the end of an epoch"),
        pytest.param({"batch": 9, "partial_batches": True}, 18, id="nothing left over"),
        pytest.param({"epochs": 5, "batch": 16}, 12, id="a subset smaller than a batch"),
        pytest.param({"epochs": 5, "batch": 16, "partial_batches": True}, 12, id="smaller than a batch, either way"),
        pytest.param({"normalization": "subset"}, 20, id="scaled by its own examples"),
        pytest.param({"padding_mode": "zeros", "flip": False}, 20, id="black borders"),
        pytest.param({"crop_padding": 0, "nesterov": False, "weight_decay": 0.0}, 21, id="flips alone"),
        pytest.param({"crop_padding": 0, "flip": False, "label_smoothing": 0.0}, 20, id="pictures as they are"),
        pytest.param({"schedule": "steps", "milestones": (1,), "warmup": 0.0}, 20, id="milestones"),
        pytest.param({"momentum": 0.0, "nesterov": False, "schedule": "constant"}, 20, id="no momentum"),
    ],
)
def test_equals_plain_torch(settings: dict[str, Any], size: int) -> None:
    learner, data, trials = small(**settings), pictures(), kept_trials(size, size)
    found = scores(learner, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(learner, data, trial), **TOLERANCE)
    assert np.abs(found[0] - found[1]).max() > 100 * TOLERANCE["atol"]


def test_greyscale_pictures_and_another_architecture() -> None:
    data = pictures()
    grey = replace(data, x_train=data.x_train[..., :1], x_test=data.x_test[..., :1])
    flat = replace(data, x_train=data.x_train[..., 0], x_test=data.x_test[..., 0])
    learner = replace(small(), architecture="resnet9", options={"width": 5})
    (trial,) = kept_trials(20)
    found = scores(learner, flat, [trial])[0]
    np.testing.assert_allclose(found, twin_scores(learner, grey, trial), **TOLERANCE)


def test_features_and_a_linear_model() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(44, 1, 1, 6))
    y = np.arange(44) % 3
    pixels = from_arrays(x[:30], y[:30], x[30:], y[30:])
    features = from_arrays(x[:30, 0, 0], y[:30], x[30:, 0, 0], y[30:])
    learner = Network("linear", "linear", replace(PLAIN, normalization="subset", crop_padding=0, flip=False))
    (trial,) = kept_trials(20)
    found = scores(learner, features, [trial])[0]
    np.testing.assert_allclose(found, twin_scores(learner, pixels, trial), **TOLERANCE)


def test_muon_trains() -> None:
    """Its update is tested by itself; here that the trainer gives it its own rate, which falls to 0."""
    learner, data, trials = small(optimizer="muon", epochs=20, muon_rate=0.1), pictures(), kept_trials(20)
    (outcome,) = outcomes(learner, data, trials)
    assert outcome.train_correct[outcome.mask].mean() > 0.9
    (trainer,) = learner._trainers.values()
    np.testing.assert_allclose(trainer._muon_rates[:40].numpy(), 0.1 * (1 - np.arange(40) / 40), rtol=1e-6)
    np.testing.assert_allclose(trainer._rates[:40].numpy(), rates(learner.recipe, 2), rtol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scores(small(), pictures(), kept_trials(20))[0]
    monkeypatch.setattr(images_module, "_EVALUATED_AT_ONCE", 7)
    np.testing.assert_allclose(scores(small(), pictures(), kept_trials(20))[0], whole, rtol=1e-5, atol=1e-6)


# What is recorded.


@pytest.mark.parametrize("record", [(), ("prediction",), ("margin",), ("logit",), EVERYTHING])
def test_recording_more_changes_nothing(record: tuple[str, ...]) -> None:
    learner, data, trials = small(), pictures(), kept_trials(20)
    full, some = outcomes(learner, data, trials)[0], outcomes(learner, data, trials, record)[0]
    assert set(some.extras) == {f"{split}_{name}" for name in record for split in ("train", "test")}
    assert np.array_equal(some.train_correct, full.train_correct)
    assert np.array_equal(some.test_correct, full.test_correct)
    assert all(some.extras[name].tobytes() == full.extras[name].tobytes() for name in some.extras)


def test_what_is_recorded_is_that_of_the_logits() -> None:
    learner, data, trials = small(), pictures(), kept_trials(20)
    found = scores(learner, data, trials)[0].astype(float)
    (outcome,) = outcomes(learner, data, trials)
    for split, own, labels in (("train", found[:30], data.y_train), ("test", found[30:], data.y_test)):
        rows = np.arange(len(labels))
        probability = (np.exp(own) / np.exp(own).sum(axis=1, keepdims=True))[rows, labels]
        others = own.copy()
        others[rows, labels] = -np.inf
        assert np.array_equal(outcome.extras[f"{split}_prediction"], own.argmax(axis=1))
        np.testing.assert_allclose(
            outcome.extras[f"{split}_margin"], own[rows, labels] - others.max(axis=1), rtol=2e-3, atol=2e-3
        )
        np.testing.assert_allclose(
            outcome.extras[f"{split}_logit"], np.log(probability / (1 - probability)), rtol=2e-3, atol=2e-3
        )


# What goes wrong.


def test_divergence_is_a_failure_with_advice() -> None:
    for settings in (
        {"rate": 1e30},
        {"rate": 1e25, "epochs": 1, "batch": 30, "warmup": 0.0},  # one step: weights finite, scores not
    ):
        (found,) = results(small(**settings), pictures(), kept_trials(20))
        assert isinstance(found, Failure)
        advised = f"`settings={{'rate': {settings['rate'] / 4:g}}}`"
        assert "diverged at the rate" in found.message
        assert advised in found.message


def test_a_model_that_diverges_fails_alone() -> None:
    """A feature of one example is huge: models that keep it diverge, and the next ones start afresh in their place."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(44, 5)), np.arange(44) % 3
    x[0, 0] = 1e25
    data = from_arrays(x[:30], y[:30], x[30:], y[30:])
    learner = Network("linear", "linear", replace(PLAIN, normalization="none", crop_padding=0, flip=False))
    trials = [trial_of(0, range(1, 21), 30), trial_of(1, range(20), 30), trial_of(2, range(5, 25), 30)]
    found = results(learner, data, trials)
    assert [isinstance(one, Failure) for one in found] == [False, True, False]
    assert isinstance(found[2], Outcome)
    assert same_bits(found[2], outcomes(learner, data, [trials[2]])[0])


def test_a_failure_does_not_spoil_the_next_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, data, trials = small(), pictures(), kept_trials(20, 20, 20)
    expected = outcomes(learner, data, trials)
    step, broken = Trainer._step, iter([False] * 3 + [True] + [False] * 100)

    def breaks_once(trainer: Trainer, width: int) -> None:
        step(trainer, width)
        if next(broken):
            raise RuntimeError("a bad moment")

    monkeypatch.setattr(Trainer, "_step", breaks_once)
    found = results(learner, data, trials)
    assert isinstance(found[0], Failure)
    assert "RuntimeError: a bad moment" in found[0].message
    assert "breaks_once" in found[0].traceback
    for one, other in zip(found[1:], expected[1:]):
        assert isinstance(one, Outcome)
        assert same_bits(one, other)


def test_no_memory_ends_the_group_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(trainer: Trainer, trial: Trial, watch: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Trainer, "train", exhausted)
    with pytest.raises(LearnerError, match=r"memory does not hold small with batches of 9; .*`settings={'batch': 4}`"):
        results(small(), pictures(), kept_trials(20, 20))


def test_a_trial_that_keeps_nothing_fails_alone() -> None:
    trials = [trial_of(0, [], 30), *kept_trials(20, 20)[1:]]
    found = results(small(), pictures(), trials)
    assert isinstance(found[0], Failure)
    assert "keeps no example" in found[0].message
    assert isinstance(found[1], Outcome)


def test_what_a_network_cannot_do_ends_the_group() -> None:
    trials = [trial_of(0, [0, 1], 4)]
    words = from_arrays(["a", "b", "c", "d"], [0, 1, 0, 1], ["a"], [0])
    with pytest.raises(LearnerError, match="a network needs images"):
        results(small(), words, trials)
    unknown = from_arrays(np.eye(4)[:, :, None], [0, 1, 0, 1], np.eye(4)[:1, :, None], [0])
    with pytest.raises(LearnerError, match=r"`settings={'normalization': 'subset'}`"):
        results(small(), unknown, trials)
    with pytest.raises(LearnerError, match="resnet9 has no option 'depth'"):
        results(replace(small(), options={"depth": 3}), pictures(), kept_trials(20))
    with pytest.raises(LearnerError, match="no architecture 'resnet10'"):
        results(replace(small(), architecture="resnet10"), pictures(), kept_trials(20))
    with pytest.raises(LearnerError, match="must be auto, cpu, cuda or cuda:N; got 'tpu'"):
        list(small().train(pictures(), kept_trials(20), record=(), device="tpu"))


# Names, settings, identity.


@pytest.mark.parametrize("name", [name for name in LEARNER_PRESETS if not name.startswith("mlp")])
def test_presets_by_name(name: str) -> None:
    learner, preset = resolve(name), LEARNER_PRESETS[name]
    assert isinstance(learner, Network)
    assert (learner.name, learner.architecture) == (name, preset.architecture)
    assert (learner.recipe, learner.options) == (preset.recipe, dict(preset.options))
    assert learner.architecture in ARCHITECTURES


def test_names_without_a_recipe() -> None:
    for short, full in (("resnet9", "resnet9@fast"), ("resnet50", "resnet50@paper"), ("inception", "inception@paper")):
        found, expected = resolve(short), resolve(full)
        assert isinstance(found, Network)
        assert isinstance(expected, Network)
        assert (found.architecture, found.recipe) == (expected.architecture, expected.recipe)


def test_the_mlp_of_mnist_is_the_learner_that_trains_many_at_once() -> None:
    learner = resolve("mlp@mnist")
    assert learner == MLP(hidden=(512, 256), epochs=10, batch=128, rate=0.1, momentum=0.9)
    assert resolve("mlp@mnist", {"epochs": "3", "hidden": "8"}) == replace(learner, epochs=3, hidden=(8,))  # type: ignore[type-var]
    assert resolve("mlp") == MLP()  # not the preset
    with pytest.raises(LearnerError, match="mlp has no setting 'flip'"):
        resolve("mlp@mnist", {"flip": "true"})


def test_settings_change_the_recipe() -> None:
    given = {"epochs": "3", "rate": "1e-2", "flip": "false", "normalization": "subset", "optimizer": "muon"}
    learner = resolve("resnet9@fast", given)
    assert isinstance(learner, Network)
    changed = {"epochs": 3, "rate": 0.01, "flip": False, "normalization": "subset", "optimizer": "muon"}
    assert learner.recipe == replace(PRESETS["fast"], **changed)
    assert resolve("resnet9@fast", changed) == learner
    assert learner.describe() != resolve("resnet9@fast").describe()


def test_settings_reach_the_architecture() -> None:
    learner = resolve("resnet9@fast", {"width": "32", "epochs": "3"})
    assert isinstance(learner, Network)
    assert (learner.options, learner.recipe.epochs) == ({"whiten": True, "width": 32}, 3)
    assert learner == resolve("resnet9@fast", {"width": 32, "epochs": 3})
    assert resolve("resnet9@fast", {"epochs": "3"}).describe()["options"] == {"whiten": True}
    assert resolve("resnet9@fast", {"whiten": "false"}).describe()["options"] == {"whiten": False}
    wider, narrow = replace(small(), options={"width": 5}), small()
    assert not np.array_equal(*(scores(one, pictures(), kept_trials(20))[0] for one in (wider, narrow)))


def test_options_of_a_preset_hold_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEARNER_PRESETS, "resnet9@fast", replace(LEARNER_PRESETS["resnet9@fast"], options={"width": 8}))
    for settings, width in (({"epochs": "3"}, 8), ({"width": "6"}, 6)):
        assert resolve("resnet9@fast", settings).describe()["options"] == {"width": width}
    assert LEARNER_PRESETS["resnet9@fast"].options == {"width": 8}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet9@fats", {}, r"no built-in learner 'resnet9@fats'; did you mean 'resnet9@fast'\?"),
        ("resnet9@mnist", {}, "no built-in learner 'resnet9@mnist'"),
        (
            "resnet9",
            {"epoch": "3"},
            r"resnet9@fast has no setting 'epoch'; did you mean 'epochs'\? Its architecture has whiten, width; any",
        ),
        ("resnet9", {"widht": "3"}, r"resnet9@fast has no setting 'widht'; did you mean 'width'\?"),
        ("resnet18", {"width": "3"}, r"resnet18@paper has no setting 'width'. Its architecture has none; any network"),
        ("resnet9", {"width": "wide"}, "'width' of resnet9@fast must be an integer; got 'wide'"),
        ("resnet9", {"epochs": "0"}, "'epochs' of the recipe must be an integer of at least 1; got 0"),
        ("resnet50@paper", {"normalization": "imagenet"}, "one of fixed, subset, dataset, unit, none"),
        (
            "resnet50@imagenet",
            {"epochs": "20"},
            r"'milestones' .* `settings={'milestones': '6,13'}`, from 1 to below epochs \(20\)",
        ),
    ],
)
def test_presets_that_are_not_there(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        resolve(name, settings)


def test_an_object_takes_no_settings_of_its_recipe() -> None:
    with pytest.raises(
        LearnerError, match=r"Network has no setting 'epochs'.* architecture, group, loading, name, options, recipe\."
    ):
        resolve(small(), {"epochs": "3"})


@pytest.mark.parametrize("name", ["resnet9@fast", "resnet50@paper", "resnet50@imagenet"])
def test_identity_survives_json(name: str) -> None:
    learner = replace(resolve(name), options={"width": 4})  # type: ignore[type-var]
    stored = json.loads(json.dumps(learner.describe(), allow_nan=False))
    assert stored == learner.describe()
    again = Network(stored["name"], stored["architecture"], Recipe(**stored["recipe"]), stored["options"])
    assert again == learner


def test_identity_follows_all_that_changes_a_model() -> None:
    base = small()
    for changed in (
        replace(base, name="other"),
        replace(base, architecture="resnet18"),
        replace(base, options={"width": 5}),
        small(rate=0.06),
        small(deterministic=False),
    ):
        assert changed.describe() != base.describe()
        assert changed != base


def test_a_pickled_network_is_the_same_without_its_models() -> None:
    learner, data, trials = small(), pictures(), kept_trials(20)
    expected = outcomes(learner, data, trials)
    assert learner._trainers
    pickled = pickle.dumps(learner)
    assert len(pickled) < 5000
    copy = pickle.loads(pickled)
    assert copy == learner
    assert copy.describe() == learner.describe()
    assert not copy._trainers
    assert same_bits(outcomes(copy, data, trials)[0], expected[0])


def test_a_network_with_another_recipe_does_not_find_the_old_trainer() -> None:
    learner, data, trials = small(), pictures(), kept_trials(20)
    outcomes(learner, data, trials)
    faster = replace(learner, recipe=replace(learner.recipe, rate=0.2))
    assert not faster._trainers
    assert same_bits(outcomes(faster, data, trials)[0], outcomes(small(rate=0.2), data, trials)[0])


# The head.


class Nested(nn.Module):
    """A model whose last layer is registered before the linear layers of an inner block are reached by depth."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6, bias=False))
        self.last = nn.Linear(6, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.gate(inputs))
        return found


def linear_layers(model: nn.Module) -> dict[str, type]:
    return {name: type(layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_last_linear_layer_alone_is_replaced(name: str) -> None:
    with torch.device("meta"):
        plain, headed = build(name, 3, 7), full_precision_head(build(name, 3, 7))
    assert {key: value.shape for key, value in headed.state_dict().items()} == {
        key: value.shape for key, value in plain.state_dict().items()
    }
    before, after = linear_layers(plain), linear_layers(headed)
    assert list(before) == list(after)
    assert [key for key in before if before[key] is not after[key]] == [list(before)[-1]]


def test_the_head_of_a_model_of_any_form() -> None:
    model = full_precision_head(Nested())
    assert [kind is nn.Linear for kind in linear_layers(model).values()] == [True, True, False]
    assert list(model.state_dict()) == list(Nested().state_dict())
    alone = full_precision_head(nn.Linear(3, 2))
    assert isinstance(alone, nn.Linear)
    assert type(alone) is not nn.Linear
    without = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten())
    assert full_precision_head(without) is without


def test_the_head_computes_in_float32_within_autocast() -> None:
    model = full_precision_head(Nested())
    reference = Nested()
    reference.load_state_dict(model.state_dict())
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(inputs), reference(inputs))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(inputs).dtype == torch.float32
        assert reference(inputs).dtype == torch.bfloat16
        found, below = model(inputs), reference.gate(inputs)
    assert below.dtype == torch.bfloat16
    torch.testing.assert_close(found, reference.last(below.float()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("partial_batches", [False, True])
def test_subsets_of_other_sizes_share_a_captured_step(
    partial_batches: bool, imitated_graphs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each is trained as if it were the only one."""
    pretend_triton(monkeypatch, installed=False)
    trials = kept_trials(20, 27, 9, 30)
    trainer = make_trainer(partial_batches=partial_batches)
    trainer._fill_tables(trials[0])
    trainer._accelerate()
    trainer._graph.trainer = trainer  # type: ignore[union-attr]
    for trial in trials:
        alone = make_trainer(partial_batches=partial_batches)
        for one in (alone, trainer):
            one.train(trial)
        assert all(torch.equal(found, expected) for found, expected in zip(trainer.scores(), alone.scores()))
    assert imitated_graphs == [3 * (2 + 3 + 1 + 3)]  # of three epochs each, from one capture


def test_every_parameter_is_trained() -> None:
    learner, data, (trial,) = small(weight_decay=0.0), pictures(), kept_trials(20)
    trainer = learner._trainer(data, 20, CPU)
    trainer._initialize(trial)
    before = {name: value.clone() for name, value in trainer._model.named_parameters()}
    trainer.train(trial)
    assert all(not torch.equal(value, before[name]) for name, value in trainer._model.named_parameters())
    held = {id(value) for value in (*trainer._optimizer._matrices, *trainer._optimizer._others)}
    assert held == {id(value) for value in trainer._model.parameters()}


# What the trainer falls back to, and what it leaves as it was.


def make_trainer(options: dict[str, Any] | None = None, **settings: Any) -> Trainer:
    recipe, options = replace(PLAIN, **settings), options or {"width": 4}
    return Trainer("resnet9", options, recipe, load_images(pictures(), recipe, CPU), 3, recipe.batch, CPU)


def test_bfloat16_is_float32_on_a_cpu() -> None:
    data, trials = pictures(), kept_trials(20)
    assert PLAIN.precision == "bfloat16"
    assert make_trainer()._dtype == torch.float32
    assert isinstance(make_trainer()._autocast(), nullcontext)
    assert same_bits(outcomes(small(), data, trials)[0], outcomes(small(precision="float32"), data, trials)[0])


@pytest.fixture
def imitated_graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """CUDA graphs on a CPU: a capture runs the step and a replay runs it again. Holds the replays of each graph."""
    replays: list[int] = []

    class Stream:
        def __init__(self, *_: Any) -> None:
            pass

        def wait_stream(self, other: Any) -> None:
            pass

    class Graph:
        trainer: Trainer

        def __init__(self) -> None:
            self.number = len(replays)
            replays.append(0)

        def replay(self) -> None:
            replays[self.number] += 1
            self.trainer._step(self.trainer._batch)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    return replays


def pretend_triton(patch: pytest.MonkeyPatch, *, installed: bool) -> None:
    find_spec, found = importlib.util.find_spec, object() if installed else None
    patch.setattr(
        importlib.util, "find_spec", lambda name, package=None: found if name == "triton" else find_spec(name, package)
    )


@pytest.mark.parametrize("partial_batches", [False, True])
def test_a_machine_without_triton_captures_the_plain_step(
    partial_batches: bool, imitated_graphs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compiled, and what the capture did to the model is gone when the first trial begins."""
    pretend_triton(monkeypatch, installed=False)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled without a compiler"))
    assert not trainer_module._can_compile()
    trials = kept_trials(20, 20)
    plain, captured = make_trainer(partial_batches=partial_batches), make_trainer(partial_batches=partial_batches)
    captured._fill_tables(trials[0])
    captured._initialize(trials[0])
    captured._model.train()
    captured._accelerate()
    assert captured._graph is not None
    captured._graph.trainer = captured  # type: ignore[attr-defined]
    for trial in trials:
        expected, found = [], []
        for trainer, into in ((plain, expected), (captured, found)):
            trainer.train(trial)
            into.extend(trainer.scores())
        assert all(torch.equal(one, other) for one, other in zip(found, expected))
    assert imitated_graphs == [2 * 6]  # the full steps of two trials, from one capture


def test_a_compiler_compiles_the_parts_of_the_step(imitated_graphs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_(function: Any, **_: Any) -> Any:
        compiled.append(function.__name__)
        return function

    pretend_triton(monkeypatch, installed=True)
    monkeypatch.setattr(torch, "compile", compile_)
    trainer = make_trainer()
    trainer._fill_tables(kept_trials(20)[0])
    trainer._accelerate()
    assert sorted(compiled) == ["_plain_loss", "_plain_predict", "_turn", "crop_and_flip"]


@pytest.mark.parametrize(("at_once", "width"), [(7, 7), (1000, 30)])  # of 30 training and 12 test examples
def test_compiled_predictions_are_of_one_width(
    at_once: int, width: int, imitated_graphs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As are those of the captured step, but for the last of an epoch; and they say the same."""
    widths: dict[str, list[int]] = {"_plain_loss": [], "_plain_predict": []}

    def compile_(function: Any, **_: Any) -> Any:
        def noting(images: Any, *rest: Any) -> Any:
            widths[function.__name__].append(len(images))
            return function(images, *rest)

        return noting if function.__name__ in widths else function

    monkeypatch.setattr(images_module, "_EVALUATED_AT_ONCE", at_once)
    (trial,) = kept_trials(20)
    plain = make_trainer(partial_batches=True)
    plain.train(trial)
    pretend_triton(monkeypatch, installed=True)
    monkeypatch.setattr(torch, "compile", compile_)
    compiled = make_trainer(partial_batches=True)
    compiled._fill_tables(trial)
    compiled._accelerate()
    assert widths["_plain_loss"] == [2, 9, 9, 9, 9]  # the last step of an epoch, too: what fails is found here
    compiled._graph.trainer = compiled  # type: ignore[union-attr]
    compiled.train(trial)
    for found, expected in zip(compiled.scores(), plain.scores()):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert set(widths["_plain_predict"]) == {width}


ROUNDING = 1e-6  # relative, of a convolution's sums of up to 576 products in float32: 6e-8 * sqrt(576)


def noise(*sizes: float) -> Iterator[None]:
    """One turn for each size, in which every value of a convolution is off by that part of itself, at random."""
    convolve = nn.Conv2d.forward
    for size in sizes:
        generators = {name: torch.Generator(name).manual_seed(0) for name in ("cpu", "cuda")[: 1 + HAS_GPU]}

        def forward(layer: nn.Conv2d, images: torch.Tensor, size: float = size, of: Any = generators) -> torch.Tensor:
            found = convolve(layer, images)
            drawn = torch.randn(found.shape, generator=of[found.device.type], device=found.device)
            return found * (1 + size * drawn)

        with pytest.MonkeyPatch.context() as patch:
            if size:
                patch.setattr(nn.Conv2d, "forward", forward)
            yield


def distance(one: dict[int, np.ndarray], other: dict[int, np.ndarray]) -> float:
    return max(float(np.abs(one[trial] - other[trial]).max()) for trial in one)


@pytest.mark.parametrize(
    ("subset_size", "partial_batches", "stable"), [(20, False, True), (26, True, True), (20, True, False)]
)
def test_rounding_stays_rounding_unless_a_step_is_on_two_pictures(
    subset_size: int, partial_batches: bool, stable: bool
) -> None:
    """Normalization divides by what differs between two pictures, which may be next to nothing."""
    data, trials = pictures(), kept_trials(*[subset_size] * 4)
    learner, other = (small(partial_batches=partial_batches, nesterov=nesterov) for nesterov in (True, False))
    plain, noisy = (scores(learner, data, trials) for _ in noise(0, ROUNDING))
    if stable:
        assert 100 * distance(noisy, plain) < distance(scores(other, data, trials), plain)
    else:
        assert distance(noisy, plain) > 0.1


def test_kernels_are_chosen_within_the_block_alone() -> None:
    def flags() -> tuple[bool, bool]:
        return torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark

    before = flags()
    with kernels(deterministic=True):
        assert flags() == (True, False)
        with kernels(deterministic=False):
            assert flags() == (False, True)
        assert flags() == (True, False)
    with pytest.raises(ValueError, match="inside"), kernels(deterministic=True):
        raise ValueError("inside")
    assert flags() == before


def test_trains_with_one_thread_and_gives_the_others_back() -> None:
    data, trials, before = pictures(), kept_trials(20), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        first = outcomes(small(), data, trials)[0]
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert same_bits(first, outcomes(small(), data, trials)[0])
    finally:
        torch.set_num_threads(before)


def test_training_and_scoring_happen_on_the_trainers_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture and Triton's kernels go to torch's current GPU, which may be another."""
    entered: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(entered.append(device)))
    data, (trial,), second = pictures(), kept_trials(20), torch.device("cuda:1")
    trainers: list[Any] = [make_trainer()]
    grouped = replace(small(), group=2)
    outcomes(grouped, data, kept_trials(20, 20))
    trainers.extend(grouped._trainers.values())
    assert not entered
    for trainer, given in zip(trainers, (trial, [trial, trial])):
        monkeypatch.setattr(trainer, "_device", second)
        for name, one in (("_train", None), ("_scored", torch.zeros(()))):
            monkeypatch.setattr(trainer, name, lambda *_, found=one: found)
        trainer.train(given)
        trainer.scores()
    assert entered == [second] * 4


# On a GPU.

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("settings", [{}, {"partial_batches": True, "optimizer": "muon", "precision": "float32"}])
def test_a_gpu_gives_the_same_bits_whatever_it_trained_before(settings: dict[str, Any]) -> None:
    data, trials = pictures(), kept_trials(20, 20, 20)
    learner = small(**settings)
    first = list(learner.train(data, trials, record=EVERYTHING, device="cuda"))
    again = list(learner.train(data, trials[::-1], record=EVERYTHING, device="cuda"))[::-1]
    (fresh,) = small(**settings).train(data, trials[1:2], record=EVERYTHING, device="cuda")
    assert all(same_bits(one, other) for one, other in zip(first, again))  # type: ignore[arg-type]
    assert same_bits(first[1], fresh)  # type: ignore[arg-type]
    assert first[0].device == torch.cuda.get_device_name()  # type: ignore[union-attr]


@needs_gpu
@pytest.mark.parametrize(("subset_size", "partial_batches"), [(20, False), (26, True)])
def test_the_captured_step_is_the_plain_step(
    subset_size: int, partial_batches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled and captured against called as it is, in float32: up to rounding, as the compiler has other kernels.

    Measured by what noise of the size of rounding does, where no step is on a handful of pictures (see above).
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    learner, data, trials = small(partial_batches=partial_batches), pictures(), kept_trials(*[subset_size] * 4)
    learner = replace(learner, recipe=replace(learner.recipe, precision="float32"))
    captured = scores(learner, data, trials, "cuda")
    (trainer,) = learner._trainers.values()
    assert trainer._graph is not None
    monkeypatch.setattr(Trainer, "_accelerate", lambda trainer: None)
    plain, noisy = (scores(replace(learner), data, trials, "cuda") for _ in noise(0, ROUNDING))
    assert distance(captured, plain) < 30 * distance(noisy, plain)


@needs_gpu
def test_a_gpu_learns_pictures() -> None:
    learner = small(epochs=25, flip=False, crop_padding=0, label_smoothing=0.0)
    for outcome in learner.train(pictures(), kept_trials(24, 24), record=(), device="cuda"):
        assert isinstance(outcome, Outcome)
        assert outcome.train_correct[outcome.mask].mean() > 0.95
        assert outcome.test_correct.mean() > 0.6


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_gpu_that_is_not_the_current_one() -> None:
    """With captures on both, in one process."""
    data, trials = pictures(), kept_trials(20, 20)
    with torch.cuda.device(0):
        found = [list(small().train(data, trials, record=EVERYTHING, device=f"cuda:{n}")) for n in (0, 1)]
        assert torch.cuda.current_device() == 0
    assert all(map(same_bits, *found))  # type: ignore[arg-type]
