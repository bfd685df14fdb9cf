"""What an explorer's folder holds, read without its own code."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i2": "<i2"}


def data_folder(page: Path) -> Path:
    found = re.search(r'src="(data-[0-9a-f]{16})/explorer\.js"', page.read_text(encoding="utf-8"))
    assert found is not None
    return page.parent / found[1]


def document(page: Path, name: str) -> dict[str, Any]:
    text = (data_folder(page) / f"{name}.js").read_text(encoding="ascii")
    found = re.fullmatch(r'memfluence\.take\("([^"]*)",(.*)\)\n', text, re.S)
    assert found is not None
    assert found[1] == name
    parsed: dict[str, Any] = json.loads(found[2])
    return parsed


def numbers(packed: list[str]) -> np.ndarray:
    """Whole numbers; nobody is -1."""
    values = np.frombuffer(base64.b64decode(packed[1]), TYPES[packed[0]]).astype(np.int64)
    return np.where(values == 0xFFFFFFFF, -1, values) if packed[0] == "u4" else values


def fractions(packed: list[str]) -> np.ndarray:
    assert packed[0] == "i2"
    values = numbers(packed)
    return np.where(values == -32768, np.nan, values / 10_000)
