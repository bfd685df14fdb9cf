"""The map of the long tail for the page: its cells, with thumbnails of their own or a few telling words each.

It is what the page shows first, so it is one small file that needs no other, and sheets of a class each.
"""

from collections.abc import Callable
from typing import Any

from memfluence.datasets import Dataset, picture_range, telling
from memfluence.estimators import Memorization
from memfluence.findings import TailMap
from memfluence.report.explorer.folder import Folder
from memfluence.report.explorer.inputs import CELL_LETTERS, NAME_LETTERS, cell
from memfluence.report.explorer.scripts import packed, packed_fractions, script
from memfluence.report.explorer.sheets import are_pictures, chosen_layout, sheets
from memfluence.wording import shortened

BUDGET = 2_000_000  # bytes of all sheets, about: the page's first look does not wait for more
SIDE = 96  # pixels: cells are small
CELLS = 40_000  # with pictures or words; the others are numbers


def add_map(
    folder: Folder, data: Dataset | None, found: TailMap, scores: Memorization, done: Callable[[float], None]
) -> None:
    """Write map.js, and map-0.webp and on where the inputs are pictures."""
    shown = found.index
    document: dict[str, Any] = {
        "columns": found.columns,
        **{name: packed(getattr(found, name)) for name in ("row", "column", "count", "index")},
        "memorization": packed_fractions(scores.value[shown]),
        "accuracyIn": packed_fractions(scores.accuracy_in[shown]),
        "accuracyOut": packed_fractions(scores.accuracy_out[shown]),
    }
    if data is not None and len(shown):
        shown_range = picture_range(data.x_train, data.value_range)
        some = shown[:CELLS]
        if are_pictures(data.x_train, shown_range):
            layout = chosen_layout(data.x_train, shown_range, len(some), BUDGET, SIDE)
            drawn = sheets(data.x_train, shown_range, some, layout, lambda count: done(count / len(some)))
            for number, content in enumerate(drawn):
                folder.add(f"map-{number}.webp", content)
            document["sheet"] = layout.told | {"tiles": len(some)}
        else:
            document["words"] = [_as_json(one) for one in telling(data, some.tolist())]
    folder.add("map.js", script("map", document))


def _as_json(found: Any) -> Any:
    """A stretch of text, or features as [name, value, standard deviations from what is usual]."""
    if isinstance(found, str):
        return found
    return [[shortened(name, NAME_LETTERS), cell(value)[:CELL_LETTERS], round(far, 1)] for name, value, far in found]
