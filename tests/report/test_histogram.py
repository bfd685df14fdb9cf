"""Bins: the usual thresholds are edges exactly, and every value is in one bin."""

import numpy as np
import pytest

from memfluence.report._histogram import histogram
from memfluence.report._wording import approximate, class_name, error, percent, short_name, value


def test_every_value_is_in_one_bin() -> None:
    values = np.random.default_rng(0).uniform(-0.4, 1, 1000)
    chart = histogram(values)
    assert chart.counts.sum() == 1000
    np.testing.assert_array_equal(chart.counts, np.histogram(values, chart.edges)[0])
    assert chart.edges[-1] == 1
    assert chart.edges[0] <= values.min() < chart.edges[1]


@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.15, 0.25, 0.3, 0.7, 0.95])
def test_a_threshold_is_the_lower_edge_of_its_bin(threshold: float) -> None:
    chart = histogram(np.array([threshold, np.nextafter(threshold, -1)]))
    at = int(np.flatnonzero(chart.edges == threshold)[0])
    assert chart.counts[at] == 1
    assert at == 0 or chart.counts[at - 1] == 1


def test_ends_and_missing_values() -> None:
    chart = histogram(np.array([1.0, -1.0, np.nan]))
    assert (chart.counts[0], chart.counts[-1], chart.missing) == (1, 1, 1)
    empty = histogram(np.array([np.nan]))
    assert (empty.counts.sum(), empty.missing) == (0, 1)


def test_wording() -> None:
    assert [value(x) for x in (0.984, -0.031, -0.001, np.nan)] == ["0.98", "−0.03", "0.00", "–"]
    assert [error(x) for x in (0.0213, 0.00996, 0.0041)] == ["0.02", "0.01", "0.004"]
    assert [percent(x) for x in (0.984, 1.0, -1e-17, np.nan)] == ["98%", "100%", "0%", "–"]
    assert [approximate(x) for x in (0.0, 1.24, 22844.6, np.nan)] == ["0", "1.2", "22,845", "–"]
    assert [class_name(x) for x in ("9", "-1", "cat")] == ["class 9", "class -1", "cat"]


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("digits", "digits"),
        ("longtail?flip=0.1", "longtail"),
        ("npz:/home/me/data.npz", "data.npz"),
        ("cifar100:/data/cifar", "cifar100"),
        ("hf:user/set?image=img", "set"),
        ("labels of trials.npz", "trials.npz"),
        ("arrays", ""),
    ],
)
def test_short_names(dataset: str, name: str) -> None:
    assert short_name(dataset) == name
