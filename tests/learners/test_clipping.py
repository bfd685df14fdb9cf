"""Clipping and noise against a plain loop: the gradient of each example by autograd, clipped and added up."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import clouds, in_batches, random_trials
from test_mlp_learner import TOLERANCE, batched_scores

from memfluence.datasets import Dataset
from memfluence.errors import LearnerError
from memfluence.learners import MLP
from memfluence.learners.nets.batched_mlp import BatchedMLP, Clipping
from memfluence.records import Trial

SETTINGS = MLP(hidden=(16,), epochs=8, batch=8)
RANGE = (-2.0, 2.0)


def twin_scores(settings: MLP, dataset: Dataset, trial: Trial) -> tuple[np.ndarray, float]:
    """Logits (n_train + n_test, n_classes) of one model, and the share of gradients that were clipped."""
    low, high = RANGE
    x = torch.tensor((np.concatenate([dataset.x_train, dataset.x_test]) - low) / (high - low), dtype=torch.float32)
    y = torch.tensor(dataset.y_train)
    init, order, noise = (trial.generator(stream) for stream in ("init", "order", "learner"))
    layers: list[torch.nn.Module] = []
    for n_in, n_out in itertools.pairwise([x.shape[1], *settings.hidden, dataset.n_classes]):
        linear = torch.nn.Linear(n_in, n_out)
        with torch.no_grad():
            for parameter in (linear.weight, linear.bias):
                drawn = init.random(tuple(parameter.shape), dtype=np.float32)
                parameter.copy_(torch.from_numpy((2 * drawn - 1) / np.float32(np.sqrt(n_in))))
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=settings.rate, momentum=settings.momentum)
    clipped = []
    for _ in range(settings.epochs):
        for batch in in_batches(torch.from_numpy(order.permutation(trial.kept)), settings.batch):
            sums = [torch.zeros_like(parameter) for parameter in parameters]
            for row in batch:
                loss = torch.nn.functional.cross_entropy(model(x[row]), y[row])
                own = torch.autograd.grad(loss, parameters)
                norm = float(torch.cat([part.flatten() for part in own]).norm())
                clipped.append(norm > settings.clip)
                for total, part in zip(sums, own):
                    total += part * min(1.0, settings.clip / norm)
            if settings.noise:
                for total in sums:
                    hidden = total.dim() == 2 and total is not sums[-2]  # whose weights are kept as (n_in, n_out)
                    drawn = noise.standard_normal(tuple(total.T.shape if hidden else total.shape), dtype=np.float32)
                    total += settings.noise * settings.clip * torch.from_numpy(drawn.T if hidden else drawn)
            for parameter, total in zip(parameters, sums):
                parameter.grad = total / len(batch)
            optimizer.step()
    with torch.no_grad():
        return model(x).numpy(), float(np.mean(clipped))


@pytest.mark.parametrize("hidden", [(), (16,), (12, 9)])
@pytest.mark.parametrize(
    ("clip", "least", "most"), [(0.02, 1.0, 1.0), (1.2, 0.1, 0.9), (1e6, 0.0, 0.0)], ids=["all", "some", "none"]
)
def test_equals_gradients_of_single_examples(hidden: tuple[int, ...], clip: float, least: float, most: float) -> None:
    settings, data = replace(SETTINGS, hidden=hidden, clip=clip), clouds(value_range=RANGE)
    trials = random_trials([28, 28, 17, 9])
    found = batched_scores(settings, data, trials)
    for trial in trials:
        scores, clipped = twin_scores(settings, data, trial)
        np.testing.assert_allclose(found[trial.number], scores, **TOLERANCE)
        assert least <= clipped <= most


@pytest.mark.parametrize("sizes", [[28, 28], [33, 25, 17, 9, 1], [16, 32]])
@pytest.mark.parametrize("hidden", [(), (12, 9)])
def test_noise_is_that_of_the_trial(hidden: tuple[int, ...], sizes: list[int]) -> None:
    """Step for step, with the batch sizes of each model's own."""
    settings, data = replace(SETTINGS, hidden=hidden, clip=0.5, noise=0.7), clouds(value_range=RANGE)
    trials = random_trials(sizes)
    found = batched_scores(settings, data, trials)
    for trial in trials:
        np.testing.assert_allclose(found[trial.number], twin_scores(settings, data, trial)[0], **TOLERANCE)


@pytest.mark.parametrize("value_range", [None, RANGE])
def test_a_clip_that_nothing_reaches_changes_no_bit(value_range: tuple[float, float] | None) -> None:
    data, trials = clouds(value_range=value_range), random_trials([28, 20, 28])
    usual, clipped = (batched_scores(replace(SETTINGS, clip=clip), data, trials) for clip in (0.0, 1e6))
    assert all(np.array_equal(usual[number], clipped[number]) for number in usual)
    noisy = batched_scores(replace(SETTINGS, clip=1e6, noise=1e-9), data, trials)
    assert not any(np.array_equal(usual[number], noisy[number]) for number in usual)


def test_a_gradient_of_nothing_is_not_scaled() -> None:
    error, given = torch.zeros(1, 3, 2), torch.ones(1, 2, 4)
    error[0, 0, 1] = 1.0
    factors = Clipping(0.1, 0.0, []).factors(error, [given], [])
    assert factors.shape == (1, 1, 2)
    np.testing.assert_allclose(factors[0, 0], [1.0, 0.1 / np.sqrt(4 + 1)], rtol=1e-6)


MODELS, WIDTHS, RATE, CLIP, NOISE = 40, [50, 60, 10], 0.3, 2.0, 0.7


def moved(noise: float, width: int, trials: list[Trial], steps: int = 1) -> np.ndarray:
    """All parameters (models, parameters) after steps without momentum, on `width` examples that are all zeros."""
    clipping = Clipping(CLIP, noise, [trial.generator("learner") for trial in trials])
    models = BatchedMLP(WIDTHS, [trial.generator("init") for trial in trials], torch.device("cpu"), clipping)
    inputs = torch.zeros(len(trials), width, WIDTHS[0])
    labels = torch.zeros(len(trials), 1, width, dtype=torch.int64)
    for _ in range(steps):
        models.step(inputs, labels, None, rate=RATE, momentum=0.0)
    return np.concatenate([part.flatten(1).numpy() for layer in models._layers for part in layer], axis=1)


@pytest.mark.parametrize("width", [1, 16])
def test_noise_has_its_mean_and_standard_deviation(width: int) -> None:
    trials = random_trials([1] * MODELS)
    drawn = (moved(NOISE, width, trials) - moved(0.0, width, trials)) * width / (RATE * NOISE * CLIP)
    assert drawn.size == MODELS * (51 * 60 + 61 * 10)
    error = 1 / np.sqrt(drawn.size)  # 0.0026; four of them, once
    assert abs(drawn.mean()) < 4 * error
    assert drawn.std() == pytest.approx(1, abs=4 * error / np.sqrt(2))
    assert (drawn**4).mean() == pytest.approx(3, abs=4 * error * np.sqrt(96))
    between = np.corrcoef(drawn)[np.triu_indices(MODELS, 1)]  # (780,) of two trials each
    assert np.abs(between).max() < 5 / np.sqrt(drawn.shape[1])


def test_noise_is_drawn_anew_at_every_step_and_again_for_the_same_trial() -> None:
    trials = random_trials([1] * 3)
    once, twice = moved(NOISE, 1, trials), moved(NOISE, 1, trials, steps=2)
    first, second = once - moved(0.0, 1, trials), twice - once
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    assert np.array_equal(once, moved(NOISE, 1, trials))
    for trial, together in zip(trials, twice):
        np.testing.assert_allclose(moved(NOISE, 1, [trial], steps=2)[0], together, rtol=1e-5, atol=1e-6)


def test_other_streams_are_those_of_a_model_without_noise() -> None:
    data, trials = clouds(value_range=RANGE), random_trials([28, 28])
    usual = batched_scores(SETTINGS, data, trials)
    quiet = batched_scores(replace(SETTINGS, clip=1e3, noise=1e-9), data, trials)  # noise of 1e-6 on sums
    for number in usual:
        np.testing.assert_allclose(quiet[number], usual[number], **TOLERANCE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": -1.0}, "'clip' of mlp must be a number of at least 0; got -1.0"),
        ({"clip": float("inf")}, "'clip'.*got inf"),
        ({"clip": True}, "'clip'.*got True"),
        ({"clip": 1.0, "noise": -0.5}, "'noise' of mlp must be a number of at least 0; got -0.5"),
        ({"clip": 1.0, "noise": float("nan")}, "'noise'.*got nan"),
        ({"noise": 0.5}, "'noise' of mlp must be 0 without clip, .*; got 0.5"),
    ],
)
def test_refuses_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        MLP(**settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_clips_the_same_way_with_the_same_noise() -> None:
    settings, data, trials = replace(SETTINGS, clip=0.5, noise=0.5), clouds(value_range=RANGE), random_trials([28, 21])
    on_cpu, on_gpu = (batched_scores(settings, data, trials, device) for device in ("cpu", "cuda"))
    for number in on_cpu:
        np.testing.assert_allclose(on_gpu[number], on_cpu[number], **TOLERANCE)
