"""Numbers and names as a reader sees them."""

import numpy as np

from memfluence.wording import approximate, class_name, error, percent, value


def test_wording() -> None:
    assert [value(x) for x in (0.984, -0.031, -0.001, np.nan)] == ["0.98", "−0.03", "0.00", "–"]
    assert [error(x) for x in (0.0213, 0.00996, 0.0041)] == ["0.02", "0.01", "0.004"]
    assert [percent(x) for x in (0.984, 1.0, -1e-17, np.nan)] == ["98%", "100%", "0%", "–"]
    assert [approximate(x) for x in (0.0, 1.24, 22844.6, np.nan)] == ["0", "1.2", "22,845", "–"]
    assert [class_name(x) for x in ("9", "-1", "cat")] == ["class 9", "class -1", "cat"]
