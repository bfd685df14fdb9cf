"""`to_images`: pictures for people."""

import numpy as np
import pandas as pd
import pytest

from memfluence.datasets import load, picture_range, to_images

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 6, 7), dtype=np.uint8)
RAMP = np.arange(256, dtype=np.uint8).reshape(4, 8, 8)
COLOUR = RNG.integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("inputs", "value_range", "expected"),
    [
        (GREY, None, GREY),
        (GREY, (0, 255), GREY),
        (COLOUR, (0, 255), COLOUR),
        (GREY[..., None], None, GREY),
        (GREY[:, None], None, GREY),
        (COLOUR.transpose(0, 3, 1, 2), None, COLOUR),
        ((GREY / 255).astype(np.float32), (0, 1), GREY),
        (GREY / 127.5 - 1, (-1, 1), GREY),
        (GREY.astype(np.int64), (0, 255), GREY),
        (GREY > 127, (0, 1), np.where(GREY > 127, 255, 0)),
        (np.full((2, 4, 4), 3.0), (0, 1), np.full((2, 4, 4), 255)),
    ],
)
def test_images(inputs, value_range, expected):
    images = to_images(inputs, value_range)
    assert images.dtype == np.uint8
    assert np.array_equal(images, expected)


@pytest.mark.parametrize(
    ("inputs", "value_range"),
    [
        (GREY / 255, None),
        (GREY.reshape(5, 42), (0, 255)),
        (COLOUR[..., :2], (0, 255)),
        (GREY[:, :1], (0, 255)),
        (["a", "b"], None),
        (np.array(["a", "b"]), None),
        (pd.DataFrame(np.eye(3)), (0, 1)),
        (COLOUR[None], None),
    ],
)
def test_not_images(inputs, value_range):
    assert to_images(inputs, value_range) is None


def test_only_the_rows_asked_for():
    class Watched(np.ndarray):
        taken = 0

        def __getitem__(self, key):
            rows = super().__getitem__(key)
            Watched.taken = max(Watched.taken, len(rows))
            return rows

        def astype(self, *arguments, **options):
            assert len(self) <= 2
            return super().astype(*arguments, **options)

    inputs = (COLOUR / 255).view(Watched)
    images = to_images(inputs, (0, 1), rows=np.array([3, 1]))
    assert np.array_equal(images, COLOUR[[3, 1]])
    assert Watched.taken == 2


def test_digits_are_images():
    dataset = load("digits")
    images = to_images(dataset.x_test, dataset.value_range, rows=np.arange(3))
    assert images.shape == (3, 8, 8)
    assert images.max() == 255


@pytest.mark.parametrize(
    ("inputs", "value_range", "expected"),
    [
        (RAMP, (0, 255), (0, 255)),
        (RAMP // 16, (0, 255), (0, 15)),  # digits stored in bytes
        (RAMP // 16, (0, 16), (0, 16)),
        (RAMP / 16, None, (0, 255 / 16)),  # as scikit-learn gives them
        (RAMP / 255, None, (0, 1)),
        (RAMP > 127, None, (0, 1)),
        (RAMP / 127.5 - 1, None, (-1, 1)),
        (RAMP.astype(np.uint16), None, (0, 255)),
        (RAMP.astype(np.uint16) * 256, None, (0, 255 * 256)),
        (RAMP * 3.0 - 20, None, (-20, 745)),
        (np.full((2, 4, 4), 7, np.uint8), (0, 255), (0, 255)),
        (np.full((2, 4, 4), 7.5), None, (0, 255)),
        (np.full((2, 4, 4), 999.0), None, (999, 1000)),
        (np.zeros((0, 4, 4)), None, (0, 1)),
        (["a", "b"], None, None),
    ],
)
def test_black_and_white_for_people(inputs, value_range, expected):
    assert picture_range(inputs, value_range) == expected
