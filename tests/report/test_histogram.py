"""Bins: the usual thresholds are edges exactly, and every value is in one bin."""

import numpy as np
import pytest

from memfluence.report._histogram import histogram


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
