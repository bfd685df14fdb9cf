"""How commands show their results to people and to programs."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["as_json", "duration", "number", "say", "size", "table"]


def as_json(document: Any) -> None:
    """One JSON document on stdout; what cannot be estimated is null."""
    sys.stdout.write(json.dumps(_plain(document), allow_nan=False, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


def say(*lines: str) -> None:
    for line in lines:
        print(line)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned with spaces, numbers to the right: readable, and easy to cut."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[k]) for row in cells)]) for k, title in enumerate(header)]
    for row in [list(header), *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
