"""What examples look like: pictures for the figure, words for the table."""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from memfluence.datasets import Dataset, features, one_input, picture_range, to_images

__all__ = ["in_words", "pictures"]

FEATURES, LETTERS = 6, 160


def pictures(dataset: Dataset, split: Literal["train", "test"], rows: Iterable[int]) -> dict[str, np.ndarray]:
    """Pictures of some examples as {"train 17": (h, w) or (h, w, 3) uint8}; none where the data are not images."""
    some = sorted(set(rows))
    shown_range = picture_range(dataset.x_train, dataset.value_range)
    images = to_images(_inputs(dataset, split), shown_range, np.array(some)) if some else None
    return {} if images is None else {f"{split} {row}": image for row, image in zip(some, images)}


def in_words(dataset: Dataset, split: Literal["train", "test"], row: int) -> str:
    """An input as text: itself, or its first features by name."""
    one = one_input(_inputs(dataset, split), row)
    if isinstance(one, str):
        text = " ".join(one[: 4 * LETTERS].split())
        return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
    named = list(features(one))
    shown = ", ".join(f"{name} {_short(value)}" for name, value in named[:FEATURES])
    return shown + (f" and {len(named) - FEATURES:,} more" if len(named) > FEATURES else "")


def _inputs(dataset: Dataset, split: str) -> Any:
    return dataset.x_train if split == "train" else dataset.x_test


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
