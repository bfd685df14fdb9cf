"""Inputs as HTML: a picture, a text, or a small table of features."""

import base64
import io
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import numpy as np

from memfluence.datasets import Dataset, features, one_input, to_images
from memfluence.report._examples import Example
from memfluence.report._wording import NAME_LETTERS, shortened

__all__ = ["inputs_as_html"]

FRAME = 96  # CSS pixels that a picture fills at most
SMALL = 64  # up to this size pictures are kept lossless and shown pixel by pixel,
TINY = 16  # but not up to this one: the eye would see squares instead of a shape
STORED = 160  # larger pictures are reduced to this, for screens with more than one pixel per CSS pixel
LETTERS, CELL_LETTERS = 160, 24
FEATURES = 6


def inputs_as_html(dataset: Dataset, split: str, examples: Iterable[Example]) -> dict[int, str]:
    """The inputs of some examples by index, ready for the page. Nothing else of the data is touched."""
    inputs, ids = (dataset.x_train, dataset.train_ids) if split == "train" else (dataset.x_test, dataset.test_ids)
    word = "training" if split == "train" else "test"
    shown = {}
    for example in examples:
        one = one_input(inputs, example.index)
        image = to_images(one[None], dataset.value_range) if isinstance(one, np.ndarray) else None
        if image is not None:
            label = shortened(dataset.class_names[example.label], NAME_LETTERS)
            name = f"{word} example {example.index}, {label}"
            shown[example.index] = _picture(image[0], name if ids is None else f"{name} ({ids[example.index]})")
        elif isinstance(one, str):
            shown[example.index] = f'<p class="text">{escape(shortened(one, LETTERS))}</p>'
        else:
            shown[example.index] = _table(features(one))
    return shown


def _picture(image: np.ndarray, name: str) -> str:
    """`image` (h, w) or (h, w, 3) uint8 as an <img>, whose size is known before it is drawn."""
    from PIL import Image

    longest = max(image.shape[:2])
    picture = Image.fromarray(image)
    if longest > STORED:
        picture.thumbnail((STORED, STORED), Image.Resampling.LANCZOS)
    kind = "png" if longest <= SMALL else "jpeg"
    content = io.BytesIO()
    picture.save(content, kind, **({"optimize": True} if kind == "png" else {"quality": 82}))
    # Small pictures grow by a whole factor, so that their pixels stay equal squares.
    scale = max(1, FRAME // longest) if longest <= SMALL else FRAME / longest
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    data = base64.b64encode(content.getvalue()).decode()
    shape = f'width="{width}" height="{height}"' + (' class="pixels"' if TINY < longest <= SMALL else "")
    return f'<img {shape} alt="{escape(name)}" title="{escape(name)}" src="data:image/{kind};base64,{data}">'


def _table(named: Iterator[tuple[str, Any]]) -> str:
    """The first features; how many more there are."""
    every = list(named)
    rows = "".join(
        f"<tr><th>{escape(shortened(name, CELL_LETTERS))}</th><td>{escape(_cell(value))}</td></tr>"
        for name, value in every[:FEATURES]
    )
    more = len(every) - FEATURES
    caption = f"<caption>and {more:,} more</caption>" if more > 0 else ""
    return f'<table class="features">{caption}{rows}</table>'


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}".replace("-", "−")
    return shortened(str(value), CELL_LETTERS)
