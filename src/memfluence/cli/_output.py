"""How commands show their results to people and to programs."""

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from memfluence.errors import one_line

if TYPE_CHECKING:
    from memfluence.runs import Table

__all__ = ["as_json", "number", "say", "show", "size", "stdout_to_stderr", "table"]

# Line breaks, escape sequences and overrides of the direction: a name must not move the cursor or turn a row around.
OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")


def as_json(document: Any) -> None:
    """One JSON document on stdout; what cannot be estimated is null. Rows that come one by one are written so."""
    sys.stdout.writelines(_pieces(document))
    sys.stdout.write("\n")


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for number, (key, one) in enumerate(value.items()):
            yield (", " if number else "") + _text(str(key)) + ": "
            yield from _pieces(one)
        yield "}"
    elif isinstance(value, Iterator):
        yield "["
        for number, one in enumerate(value):
            yield (", " if number else "") + _text(one)
        yield "]"
    else:
        yield _text(value)


def _text(value: Any) -> str:
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if hasattr(value, "item") else value


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what code within the block prints, and what its child processes print, to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def say(*lines: str) -> None:
    for line in lines:
        print(one_line(line) if line.strip() else line)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned with spaces, numbers to the right: readable, and easy to cut."""
    cells = [[OBEYED.sub(" ", str(cell)) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[k]) for row in cells)]) for k, title in enumerate(header)]
    for row in [list(header), *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())


def show(found: "Table", titles: Mapping[str, str], digits: int = 3) -> None:
    """Columns of a table by name, under their titles; what cannot be estimated is a dash."""
    cells = [[number(x, digits) if isinstance(x, float) else x for x in found[name].tolist()] for name in titles]
    table(list(titles.values()), zip(*cells))


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")
