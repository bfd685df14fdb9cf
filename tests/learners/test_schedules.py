"""The rate at every step, against tables written from the appendix's words in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from memfluence.learners.recipes import PRESETS, Recipe, override, rates, steps_per_epoch


def imagenet_table(steps_an_epoch: int) -> list[Fraction]:
    """ "grow linearly from 0 to the maximum value (the base learning rate) during the first 15 epochs, then it remains
    piecewise constant, with a 10x decay at epoch 30, 60 and 90, respectively", 0.7, 100 epochs."""
    base = Fraction(7, 10)
    table = [base * step / (15 * steps_an_epoch) for step in range(15 * steps_an_epoch)]
    table += [base] * (15 * steps_an_epoch)  # epochs 15 to 30
    table += [base / 10] * (30 * steps_an_epoch)  # epochs 30 to 60
    table += [base / 100] * (30 * steps_an_epoch)  # epochs 60 to 90
    table += [base / 1000] * (10 * steps_an_epoch)  # epochs 90 to 100
    return table


def linear_table(base: Fraction, steps: int) -> list[Fraction]:
    """ "grow linearly from 0 to the maximum value (base learning rate) in the first 15% iterations, and then decay
    linearly back to 0 in the remaining iterations"."""
    table = []
    for step in range(steps):
        part = Fraction(step, steps)  # of the training that is behind
        if part < Fraction(15, 100):
            table.append(base * part / Fraction(15, 100))
        else:
            table.append(base * (1 - part) / Fraction(85, 100))
    return table


def assert_is(found: np.ndarray, table: list[Fraction]) -> None:
    assert found.dtype == np.float64
    assert found.shape == (len(table),)
    np.testing.assert_allclose(found, np.array([float(rate) for rate in table]), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("steps_an_epoch", [1, 3, 7, 1000])  # 1000: 70% of ImageNet in batches of 896
def test_imagenet(steps_an_epoch: int) -> None:
    assert_is(rates(PRESETS["imagenet"], steps_an_epoch), imagenet_table(steps_an_epoch))


@pytest.mark.parametrize(
    ("preset", "base", "epochs"),
    [
        ("cifar100", Fraction(4, 10), 160),
        ("cifar100-densenet", Fraction(2, 10), 160),
        ("cifar100-linear", Fraction(4, 10), 40),
        ("mnist", Fraction(1, 10), 30),
    ],
)
@pytest.mark.parametrize("steps_an_epoch", [1, 3, 68, 97])
def test_cifar100_and_mnist(preset: str, base: Fraction, epochs: int, steps_an_epoch: int) -> None:
    assert_is(rates(PRESETS[preset], steps_an_epoch), linear_table(base, epochs * steps_an_epoch))


def test_cifar100_by_hand() -> None:
    """160 epochs of 100 steps: the highest rate at step 2400, half of it at 1200 and at 9200."""
    found = rates(PRESETS["cifar100"], 100)
    assert found[0] == 0
    assert found.argmax() == 2400
    assert found[2400] == pytest.approx(0.4)
    assert found[[1200, 9200]] == pytest.approx([0.2, 0.2])
    assert found[-1] == pytest.approx(0.4 / 13600)


def test_the_authors_mnist_example_is_constant() -> None:
    assert rates(PRESETS["mnist-mlp"], 5).tolist() == [0.1] * 50


def test_small_recipes_written_out() -> None:
    plain = Recipe(epochs=4, batch=1, rate=8.0, warmup=0.5)
    assert rates(plain, 2).tolist() == [0, 2, 4, 6, 8, 6, 4, 2]
    assert rates(override(plain, {"warmup": "0"}), 2).tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert rates(override(plain, {"schedule": "constant"}), 2).tolist() == [0, 2, 4, 6, 8, 8, 8, 8]
    stepwise = override(plain, {"schedule": "steps", "milestones": "1,3", "decay": "0.5"})
    assert rates(stepwise, 2).tolist() == [0, 2, 2, 3, 4, 4, 2, 2]  # the first milestone falls into the warm-up
    assert rates(override(stepwise, {"warmup": "0", "milestones": ""}), 2).tolist() == [8] * 8
    assert rates(Recipe(epochs=1, batch=1, rate=8.0), 1).tolist() == [0]


@pytest.mark.parametrize(
    ("batch", "partial_batches", "subset_size", "steps"),
    [
        (512, False, 35000, 68),
        (512, True, 35000, 69),
        (512, False, 1024, 2),
        (512, True, 1024, 2),
        (512, False, 511, 1),
        (512, True, 511, 1),
        (512, True, 513, 2),
        (512, False, 1, 1),
    ],
)
def test_steps_of_an_epoch(batch: int, partial_batches: bool, subset_size: int, steps: int) -> None:
    recipe = Recipe(epochs=1, batch=batch, rate=0.1, partial_batches=partial_batches)
    assert steps_per_epoch(recipe, subset_size) == steps
