"""The recipe "plain": modules are given examples that are no pictures in the shape that the data have."""

from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import outcomes, random_trials
from torch import nn

import memfluence as mf
from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners import resolve
from memfluence.learners.network import Network

N_TRAIN, N_TEST = 40, 20
LENGTH = 24


def series(*shape: int) -> Dataset:
    """Waves of two lengths in noise, as (n, *shape); features, channels or whatever the axes are."""
    rng = np.random.default_rng(0)
    y = np.arange(N_TRAIN + N_TEST) % 2
    waves = np.sin(np.linspace(0, 9, LENGTH) * (1 + y[:, None])) + rng.normal(0, 0.3, (len(y), LENGTH))
    x = waves.astype(np.float32).reshape(len(y), *shape)
    return from_arrays(x[:N_TRAIN], y[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:])


class Seeing(nn.Module):
    """A linear model that notes the shapes that it is given."""

    shapes: set[tuple[int, ...]] = set()  # noqa: RUF012  (every module's)

    def __init__(self, n_classes: int, in_channels: int = 0) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(LENGTH, n_classes))

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        self.shapes.add((self.in_channels, *examples.shape[1:]))
        found: torch.Tensor = self.layers(examples)
        return found


class Waves(nn.Module):
    """A convolution over time."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * (LENGTH - 4), n_classes))

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(examples if examples.ndim == 3 else examples[:, None])
        return found


def trained(learner: Network, data: Dataset) -> list[Any]:
    return outcomes(learner, data, random_trials([28, 28, 20], N_TRAIN), record=("margin",))


@pytest.mark.parametrize("shape", [(LENGTH,), (1, LENGTH), (LENGTH, 1), (3, 8), (2, 3, 4), (2, 3, 2, 2)])
@pytest.mark.parametrize("group", [1, 3])
def test_modules_are_given_examples_in_the_shape_of_the_data(shape: tuple[int, ...], group: int) -> None:
    Seeing.shapes.clear()
    found = trained(mf.network(Seeing, recipe="plain", epochs=2, group=group), series(*shape))
    assert Seeing.shapes == {(shape[0], *shape)}
    assert len(found) == 3


def test_a_shape_changes_no_bit_of_what_is_learned() -> None:
    """As features, which are pixels to recipes for pictures, whose settings are the same otherwise."""
    shaped = trained(mf.network(Seeing, recipe="plain", epochs=5), series(2, 12))
    flat = trained(mf.network(Seeing, recipe="plain", epochs=5, pictures=True), series(LENGTH))
    for one, other in zip(shaped, flat, strict=True):
        for name in ("train_correct", "test_correct"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert np.array_equal(one.extras["test_margin"], other.extras["test_margin"])


@pytest.mark.parametrize("shape", [(LENGTH,), (1, LENGTH)])
def test_time_series_are_learned(shape: tuple[int, ...]) -> None:
    found = trained(mf.network(Waves, recipe="plain"), series(*shape))
    assert np.mean([one.test_correct.mean() for one in found]) > 0.9


def test_what_plain_is_and_refuses() -> None:
    recipe = mf.network(Waves, recipe="plain").recipe
    assert (recipe.pictures, recipe.crop_padding, recipe.flip, recipe.normalization) == (False, 0, False, "subset")
    for setting in ({"flip": True}, {"crop_padding": 2}):
        with pytest.raises(LearnerError, match="where pictures is false"):
            mf.network(Waves, recipe="plain", **setting)
    with pytest.raises(LearnerError, match=r"Waves cannot be applied to examples \(2, 3, 8\): RuntimeError"):
        trained(mf.network(Waves, recipe="plain"), series(3, 8))
    of_pictures = {"pictures": "false", "flip": "false", "crop_padding": "0", "normalization": "subset"}
    built_in: Any = resolve("resnet9@fast", of_pictures)
    with pytest.raises(LearnerError, match=r"resnet9@fast is made for pictures; give a module of your own"):
        trained(built_in, series(LENGTH))
