"""Images on the device against NumPy and plain loops: padding, crops, flips, scaling and what is refused."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from learner_worlds import pictures

from memfluence.datasets import Dataset, from_arrays
from memfluence.errors import LearnerError
from memfluence.learners.nets.images import (
    ImageData,
    channel_statistics,
    crop_and_flip,
    load_images,
    padded_images,
    scaling,
)
from memfluence.learners.recipes import Recipe

CPU = torch.device("cpu")


def recipe(**settings: Any) -> Recipe:
    return Recipe(epochs=1, batch=4, rate=0.1, **settings)


def loaded(x: Any, **settings: Any) -> ImageData:
    y = np.arange(len(x)) % 2
    return load_images(from_arrays(x, y, x[: len(x) // 2], y[: len(x) // 2]), recipe(**settings), CPU)


def random_images(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    drawn = np.random.default_rng(0).integers(0, 256, size=shape)
    return drawn.astype(dtype) if dtype == np.uint8 else (drawn / 100 - 1).astype(dtype)


@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize(("mode", "numpys"), [("zeros", "constant"), ("reflect", "reflect")])
def test_padding_is_numpys(mode: str, numpys: Any, dtype: Any, padding: int) -> None:
    images = random_images(5, 4, 6, 3, dtype=dtype)
    found = padded_images(torch.from_numpy(images), padding, mode)
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    assert np.array_equal(found.numpy(), np.pad(images, around, mode=numpys))
    assert found.numpy().dtype == dtype
    assert found.is_contiguous()


def test_padding_changes_neither_the_images_nor_the_dataset() -> None:
    data = pictures()
    before = data.x_train.copy()
    images = load_images(data, recipe(crop_padding=2), CPU)
    assert np.array_equal(images.train.numpy(), before)
    images.train.zero_()
    images.test.zero_()
    assert np.array_equal(data.x_train, before)
    assert data.x_test.any()


def naive_batch(
    padded: np.ndarray, rows: np.ndarray, top: np.ndarray, left: np.ndarray, flip: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """Crops (batch, height, width, channels), one image after another."""
    cut = []
    for row, y, x, mirrored in zip(rows, top, left, flip):
        crop = padded[row, y : y + size[0], x : x + size[1]]
        cut.append(crop[:, ::-1] if mirrored else crop)
    return np.stack(cut)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_crops_and_flips_are_those_of_a_plain_loop(dtype: Any, channels: int) -> None:
    rng, size, padding, batch = np.random.default_rng(1), (5, 7), 2, 40
    padded = random_images(6, size[0] + 2 * padding, size[1] + 2 * padding, channels, dtype=dtype)
    rows = rng.integers(0, 6, batch).astype(np.int32)
    top, left = rng.integers(0, 2 * padding + 1, (2, batch)).astype(np.int32)
    flip = rng.random(batch) < 0.5
    shift, factor = rng.normal(size=(2, channels)).astype(np.float32)
    arguments = [torch.from_numpy(array) for array in (padded, rows, top, left, flip, shift, factor)]
    found = crop_and_flip(*arguments, size, torch.float32)
    expected = (naive_batch(padded, rows, top, left, flip, size).astype(np.float32) - shift) * factor
    assert np.array_equal(found.numpy(), expected.transpose(0, 3, 1, 2))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert crop_and_flip(*arguments, size, torch.bfloat16).dtype == torch.bfloat16


def test_a_crop_in_the_middle_is_the_image_itself() -> None:
    for mode in ("zeros", "reflect"):
        images = load_images(pictures(), recipe(crop_padding=3, padding_mode=mode), CPU)
        rows, middle = torch.arange(30), torch.full((30,), 3)
        still = torch.zeros(30, dtype=torch.bool)
        shift, factor = torch.zeros(3), torch.ones(3)
        found = crop_and_flip(images.padded, rows, middle, middle, still, shift, factor, (8, 8), torch.float32)
        assert torch.equal(found, images.train.float().permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("normalization", "shift", "factor"),
    [("fixed", 127.5, 1 / 127.5), ("unit", 0.0, 1 / 255), ("none", 0.0, 1.0)],
)
def test_scaling_by_the_range(normalization: str, shift: float, factor: float) -> None:
    images = load_images(pictures(), recipe(normalization=normalization), CPU)
    found = scaling(images, recipe(normalization=normalization), torch.arange(5))
    for values, expected in zip(found, (shift, factor)):
        np.testing.assert_allclose(values.numpy(), [expected] * 3, rtol=1e-6)
        assert values.dtype == torch.float32


def test_scaling_by_a_range_that_is_not_of_bytes() -> None:
    """From (-2, 6): fixed maps -2, 2 and 6 to -1, 0 and 1, unit to 0, 0.5 and 1."""
    values = np.array([-2.0, 2.0, 6.0])
    data = from_arrays(values[:, None], [0, 1, 0], values[:, None], [0, 1, 0], value_range=(-2, 6))
    for normalization, expected in (("fixed", [-1, 0, 1]), ("unit", [0, 0.5, 1]), ("none", [-2, 2, 6])):
        images = load_images(data, recipe(normalization=normalization), CPU)
        shift, factor = scaling(images, recipe(normalization=normalization), torch.arange(3))
        scaled = (images.train.float() - shift) * factor
        np.testing.assert_allclose(scaled.flatten().numpy(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_scaling_by_the_subset_sees_the_kept_rows_alone(dtype: Any) -> None:
    x, kept = random_images(12, 4, 5, 3, dtype=dtype), np.array([1, 4, 5, 10])
    settings = recipe(normalization="subset", crop_padding=1)  # the padding is no part of it
    shift, factor = scaling(loaded(x, normalization="subset", crop_padding=1), settings, torch.from_numpy(kept))
    own = x[kept].astype(float)
    np.testing.assert_allclose(shift.numpy(), own.mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(factor.numpy(), 1 / own.std(axis=(0, 1, 2)), rtol=1e-6)
    others = np.setdiff1d(np.arange(12), kept)
    x[others] = 200
    again = scaling(loaded(x, normalization="subset"), settings, torch.from_numpy(kept))
    assert torch.equal(again[0], shift)
    assert torch.equal(again[1], factor)


def test_scaling_by_the_dataset_sees_all_rows() -> None:
    x = random_images(12, 4, 5, 3)
    shift, factor = scaling(loaded(x, normalization="dataset"), recipe(normalization="dataset"), torch.arange(2))
    np.testing.assert_allclose(shift.numpy(), x.astype(float).mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(factor.numpy(), 1 / x.astype(float).std(axis=(0, 1, 2)), rtol=1e-6)


def test_a_channel_that_is_constant_among_the_kept_is_only_centred() -> None:
    x = random_images(12, 4, 4, 3, dtype=np.float32)
    x[:8, ..., 1] = 0.1
    shift, factor = scaling(loaded(x, normalization="subset"), recipe(normalization="subset"), torch.arange(8))
    assert shift[1] == np.float32(0.1)
    assert factor[1] == 1


def test_rounding_makes_no_deviation() -> None:
    """Sums of thousands of equal squares are rounded: what is constant must not be blown up by what that leaves."""
    values = torch.rand(200, generator=torch.Generator().manual_seed(0)) * 3
    mean, deviation = channel_statistics(values.expand(35000, 1, 1, 200).split(4096))
    assert torch.equal(mean, values)
    assert not deviation.any()
    far = 1e6 + torch.arange(9.0).view(9, 1, 1, 1)  # small beside its mean
    mean, deviation = channel_statistics([far])
    assert (mean.item(), deviation.item()) == (1e6 + 4, pytest.approx(np.arange(9).std(), rel=1e-6))


@pytest.mark.parametrize("many", [4096, 4097])
def test_statistics_do_not_depend_on_blocks(many: int) -> None:
    x = torch.from_numpy(random_images(many, 1, 2, 3))
    mean, deviation = channel_statistics(x.split(4096))
    np.testing.assert_allclose(mean.numpy(), x.double().mean(dim=(0, 1, 2)).numpy(), rtol=1e-6)
    np.testing.assert_allclose(deviation.numpy(), x.double().std(dim=(0, 1, 2), correction=0).numpy(), rtol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_first_are_turned(channels: int) -> None:
    x = random_images(6, 8, 10, channels)
    last, first = loaded(x), loaded(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    assert torch.equal(first.train, last.train)
    assert torch.equal(first.test, last.test)
    assert first.channels == channels
    assert first.train.is_contiguous()


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [
        ((6, 8, 10), (6, 8, 10, 1)),
        ((6, 8, 10, 1), (6, 8, 10, 1)),
        ((6, 8, 10, 3), (6, 8, 10, 3)),
        ((6, 3, 3, 3), (6, 3, 3, 3)),  # either way round
        ((6, 8, 10, 5), (6, 8, 10, 5)),
        ((6, 7), (6, 1, 1, 7)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_shapes_and_types(shape: tuple[int, ...], becomes: tuple[int, ...], dtype: Any) -> None:
    x = random_images(*shape, dtype=dtype)
    images = loaded(x, normalization="none")
    assert images.train.shape == becomes
    assert images.test.shape == (3, *becomes[1:])
    assert images.channels == becomes[3]
    assert images.train.dtype == (torch.uint8 if dtype == np.uint8 else torch.float32)
    np.testing.assert_array_equal(images.train.numpy().reshape(shape), x.astype(np.float32))


def test_pixels_of_a_greyscale_picture_stay_where_they_are() -> None:
    x = random_images(6, 8, 10)
    assert np.array_equal(loaded(x).train[..., 0].numpy(), x)
    features = random_images(6, 7)
    assert np.array_equal(loaded(features, normalization="none").train[:, 0, 0].numpy(), features)


@pytest.mark.parametrize("convert", [torch.from_numpy, lambda x: x.tolist(), lambda x: x > 100])
def test_takes_numbers_of_any_kind(convert: Any) -> None:
    x = random_images(6, 8, 8, 3)
    images = loaded(convert(x), normalization="none")
    np.testing.assert_array_equal(images.train.numpy(), np.asarray(convert(x)).astype(np.float32))


def test_read_only_arrays_are_copied_without_a_warning() -> None:
    x = random_images(6, 8, 8, 3)
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded(x).train.shape == x.shape


def raw(x_train: Any) -> Dataset:
    return from_arrays(x_train, [0, 1, 0, 1], x_train, [0, 1, 0, 1], name="mine")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["a", "b", "c", "d"], r"mine: a network needs images \(n, height, width\[, channels\]\) .* shape \(4,\) of "),
        (np.zeros(4), r"shape \(4,\) of float64"),
        (np.zeros((4, 2, 2, 2, 2)), r"shape \(4, 2, 2, 2, 2\) of float64"),
        ([[[1]], [[1, 2]], [[3]], [[4]]], r"shape \(4,\) of object. Other data go to a scikit-learn pipeline"),
    ],
)
def test_refuses_what_is_no_image(inputs: Any, message: str) -> None:
    with pytest.raises(LearnerError, match=message):
        load_images(raw(inputs), recipe(), CPU)


@pytest.mark.parametrize("normalization", ["fixed", "unit"])
def test_refuses_to_scale_by_an_unknown_range(normalization: str) -> None:
    data = raw(np.zeros((4, 8, 8)) + np.arange(4)[:, None, None])
    with pytest.raises(LearnerError, match=r"range of its values is not known.*`settings={'normalization': 'subset'}`"):
        load_images(data, recipe(normalization=normalization), CPU)
    for possible in ("subset", "dataset", "none"):
        load_images(data, recipe(normalization=possible), CPU)


def test_refuses_to_mirror_more_than_there_is() -> None:
    x = random_images(4, 3, 8, 3)
    assert loaded(x, crop_padding=2, padding_mode="reflect").padded.shape == (4, 7, 12, 3)
    assert loaded(x, crop_padding=3).padded.shape == (4, 9, 14, 3)
    with pytest.raises(LearnerError, match=r"crop_padding=3 cannot be mirrored in images of \(3, 8\) pixels"):
        loaded(x, crop_padding=3, padding_mode="reflect")
