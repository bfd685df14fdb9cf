"""The inputs of all examples for the explorer: sheets of thumbnails, or texts and features; and their ids."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from memfluence.datasets import Dataset
from memfluence.report._wording import shortened
from memfluence.report.explorer.folder import Folder
from memfluence.report.explorer.pictures import are_pictures
from memfluence.report.explorer.scripts import script
from memfluence.report.explorer.sheets import MARGIN, chosen_layout, sheets
from memfluence.report.explorer.tables import CHUNK, default_order
from memfluence.report.explorer.texts import is_text, letters_for, rows_as_json

if TYPE_CHECKING:
    from memfluence.runs import Run

__all__ = ["add_inputs"]

ID_LETTERS = 200


def add_inputs(
    folder: Folder, data: Dataset | None, run: "Run", keep: float | None, done: Callable[[float], None]
) -> dict[str, Any]:
    """Write them all; give what the page has to know to show them."""
    if data is None:
        return {"inputs": "none", "ids": False}
    examples = data.n_train + data.n_test
    order = default_order(run.estimate_memorization(keep).value)
    splits = (
        ("train", data.x_train, data.train_ids, order, 0),
        ("test", data.x_test, data.test_ids, np.arange(data.n_test), data.n_train),
    )
    are_images = are_pictures(data.x_train, data.value_range)
    ids = data.train_ids is not None or data.test_ids is not None
    about: dict[str, Any] = {"ids": ids, "inputs": "images" if are_images else "texts"}
    if are_images:
        layout = chosen_layout(data.x_train, data.value_range, examples)
        about["sheet"] = {
            "side": layout.side,
            "margin": MARGIN,
            "across": layout.across,
            "pixels": layout.pixels,
        }
    elif not is_text(data.x_train):
        about["inputs"] = "features"
    for split, inputs, names, tile_order, before in splits:
        n = len(tile_order)
        if are_images:
            made = sheets(inputs, data.value_range, tile_order, layout, lambda k, first=before: done((first + k) / examples))
            for number, content in enumerate(made):
                folder.add(f"{split}-{number}.webp", content)
        if not are_images or ids:
            letters = letters_for(examples)
            for number, start in enumerate(range(0, n, CHUNK)):
                rows = range(start, min(n, start + CHUNK))
                document = {} if are_images else rows_as_json(inputs, rows, letters)
                if names is not None:
                    document["ids"] = [shortened(str(names[row]), ID_LETTERS) for row in rows]
                folder.add(f"{split}-inputs-{number}.js", script(f"{split}-inputs-{number}", document))
                if not are_images:
                    done((before + rows[-1] + 1) / examples)
    return about
