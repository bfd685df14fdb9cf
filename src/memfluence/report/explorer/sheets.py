"""Thumbnails in sheets: few files, small enough that a page loads only what is seen.

A sheet holds some tiles side by side, each with a margin of its own edge pixels, so that scaling does not mix
neighbours. The size and quality of tiles are the best whose sheets, judged by a sample, stay within the budget.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import LazyImages, to_images

if TYPE_CHECKING:
    from PIL.Image import Image

BUDGET = 100_000_000  # bytes of all sheets
SIDES = (160, 128, 96, 64, 48, 32, 24)
SMALL = 64  # up to this side pixels are worth keeping as they are
TINY, GROWN = 16, 48  # smaller pictures grow: the eye would see squares instead of a shape
QUALITIES = (90, 80, 60)
SAMPLE = 64
MARGIN = 1
SHEET = 128  # pixels of a sheet's side, if that is 4 to 16 tiles


@dataclass(frozen=True)
class Layout:
    """The form of stored tiles: their side in pixels, the quality (None: lossless), tiles in a row of a sheet."""

    side: int
    quality: int | None

    @property
    def across(self) -> int:
        return min(16, max(4, SHEET // self.side))

    @property
    def tiles(self) -> int:
        return self.across**2

    @property
    def told(self) -> dict[str, Any]:
        """What the page has to know to find a tile."""
        return {"side": self.side, "margin": MARGIN, "across": self.across}


def chosen_layout(
    inputs: Any,
    value_range: tuple[float, float] | None,
    examples: int,
    budget: int = BUDGET,
    longest_side: int = SIDES[0],
) -> Layout:
    """The best layout within the budget for so many examples of which these are some."""
    rows = np.unique(np.linspace(0, _length(inputs) - 1, SAMPLE).astype(int))
    sample = pictures(inputs, value_range, rows)
    longest = max([max(one.size) for one in sample if one is not None], default=1)
    native = GROWN if longest <= TINY else min(longest, longest_side)
    sides = [native, *(side for side in SIDES if side < native)]
    choices = [Layout(side, quality) for side in sides for quality in QUALITIES]
    if longest <= SMALL:
        choices.insert(0, Layout(native, None))
    for layout in choices:
        bytes_each = len(_encoded([_tile(one, layout.side) for one in sample], layout)) / len(sample)
        if bytes_each * examples <= budget:
            return layout
    return choices[-1]


def sheets(
    inputs: Any,
    value_range: tuple[float, float] | None,
    order: np.ndarray,
    layout: Layout,
    done: Callable[[int], None],
) -> Iterator[bytes]:
    """The sheets of the inputs in that order, as WebP; `done` is told how many examples are finished."""

    def sheet(start: int) -> bytes:
        rows = order[start : start + layout.tiles]
        return _encoded([_tile(one, layout.side) for one in pictures(inputs, value_range, rows)], layout)

    starts = range(0, len(order), layout.tiles)
    threads = min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:  # Pillow encodes and decodes outside of the interpreter's lock
        for first in range(0, len(starts), 8 * threads):  # a bounded number of sheets at a time
            some = starts[first : first + 8 * threads]
            yield from pool.map(sheet, some)
            done(min(len(order), some[-1] + layout.tiles))


def _tile(picture: "Image | None", side: int) -> np.ndarray:
    """The picture in the middle of a square, (side, side, 4) uint8, clear where it does not reach."""
    from PIL import Image

    tile = np.zeros((side, side, 4), np.uint8)
    if picture is None:
        return tile
    longest = max(picture.size)
    if longest > side or longest <= TINY:
        scale = side / longest
        size = tuple(max(1, round(length * scale)) for length in picture.size)
        picture = picture.resize(
            (size[0], size[1]), Image.Resampling.LANCZOS if longest > side else Image.Resampling.BICUBIC
        )
    pixels = np.asarray(picture.convert("RGBA"))
    top, left = ((side - length) // 2 for length in pixels.shape[:2])
    tile[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return tile


def _encoded(tiles: Sequence[np.ndarray], layout: Layout) -> bytes:
    from PIL import Image

    step = layout.side + 2 * MARGIN
    rows = -(-len(tiles) // layout.across)
    sheet = np.zeros((rows * step, min(layout.across, len(tiles)) * step, 4), np.uint8)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, layout.across)
        framed = np.pad(tile, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), mode="edge")
        sheet[row * step : (row + 1) * step, column * step : (column + 1) * step] = framed
    filled = all((tile[..., 3] == 255).all() for tile in tiles)
    image = Image.fromarray(sheet[..., :3] if filled else sheet)
    content = io.BytesIO()
    how = {"lossless": True} if layout.quality is None else {"quality": layout.quality}
    image.save(content, "WEBP", method=4, **how)
    return content.getvalue()


def _length(inputs: Any) -> int:
    shape = getattr(inputs, "shape", None)
    return int(shape[0]) if shape else len(inputs)


def are_pictures(inputs: Any, value_range: tuple[float, float] | None) -> bool:
    """True if the inputs can be shown as pictures, judged by the first."""
    return pictures(inputs, value_range, [0])[0] is not None


def pictures(
    inputs: Any, value_range: tuple[float, float] | None, rows: Sequence[int] | np.ndarray
) -> "list[Image | None]":
    """Pictures in RGB or RGBA of some rows; None for an input that is none."""
    from PIL import Image

    if isinstance(inputs, LazyImages | np.ndarray):
        images = to_images(inputs, value_range, np.asarray(rows))
        if images is not None:
            return [Image.fromarray(image).convert("RGB") for image in images]
    if hasattr(inputs, "iloc") or hasattr(inputs, "tocsr"):  # tables and sparse matrices have rows, no pictures
        return [None] * len(rows)
    return [_picture(inputs[int(row)], value_range) for row in rows]


def _picture(one: Any, value_range: tuple[float, float] | None) -> "Image | None":
    from PIL import Image

    if isinstance(one, Image.Image):
        if one.mode.startswith(("I", "F")):  # 16 or 32 bits: between the darkest and the brightest
            numbers = np.asarray(one, np.float64)
            spread = float(np.ptp(numbers)) or 1.0
            return Image.fromarray(np.uint8((numbers - numbers.min()) * (255 / spread))).convert("RGB")
        return one.convert("RGBA" if one.mode in ("RGBA", "LA", "PA") or "transparency" in one.info else "RGB")
    if not isinstance(one, np.ndarray) or one.ndim not in (2, 3) or min(one.shape[:2]) < 1:
        return None
    if one.ndim == 3 and one.shape[2] in (2, 4) and one.dtype == np.uint8:  # grey or colour with transparency
        colour = np.repeat(one[..., :1], 3, axis=2) if one.shape[2] == 2 else one[..., :3]
        return Image.fromarray(np.concatenate([colour, one[..., -1:]], axis=2))
    image = to_images(one[None], value_range)
    return None if image is None else Image.fromarray(image[0]).convert("RGB")
