"""JSON that others may have written: read so that whatever is wrong with it is one ValueError with a short text."""

import json
import math
from typing import Any, NoReturn

from memfluence.errors import shortened

__all__ = ["MOST", "plain_json"]

MOST = 2**31  # what is counted stays below: far more than anybody trains, and little enough to count up to
_DEEPEST = 100


def plain_json(content: bytes | str) -> Any:
    """What a JSON text holds: no deeper than 100 levels, no number that is not finite, no text that is not Unicode."""
    try:
        value = json.loads(content, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(value, _DEEPEST)
    return value


def _refused(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no number")


def _check(value: Any, levels: int) -> None:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{shortened(value)} is no text") from None
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it holds a number beyond all floats")
    elif isinstance(value, dict | list):
        if not levels:
            raise ValueError("it is nested too deeply")
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(part, levels - 1)
