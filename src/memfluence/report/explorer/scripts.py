"""Data as classic scripts, the one form that a page on `file://` may load: JSON with arrays packed in base64.

A script calls `memfluence.take(name, document)`. Numbers between -1 and 1 are kept as 16-bit integers in steps of
0.0001, far finer than their errors, rounded down so that they compare with thresholds as before; NaN, what the trials
cannot give, is the lowest integer.
"""

import base64
import json
from typing import Any

import numpy as np

STEPS = 10_000  # per unit
MISSING = -32768
NOBODY = 0xFFFFFFFF  # index of no example
LETTERS = {np.dtype(np.uint8): "u1", np.dtype(np.uint16): "u2", np.dtype(np.uint32): "u4", np.dtype(np.int16): "i2"}


def script(name: str, document: Any) -> bytes:
    """The document as a script: ASCII, and without a character that could end a script or begin markup."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"memfluence.take({json.dumps(name)},{text})\n".encode("ascii")


def packed(values: np.ndarray) -> list[Any]:
    """[type, base64] of whole numbers in the narrowest unsigned type; -1 (nobody) is the highest of 32 bits."""
    whole = np.asarray(values)
    if whole.size and whole.min() < 0:
        return _packed(np.where(whole < 0, NOBODY, whole).astype(np.uint32))
    highest = int(whole.max()) if whole.size else 0
    return _packed(whole.astype(np.uint8 if highest < 2**8 else np.uint16 if highest < 2**16 else np.uint32))


def packed_fractions(values: np.ndarray) -> list[Any]:
    """[type, base64] of numbers around -1 to 1."""
    return _packed(quantized(values))


def quantized(values: np.ndarray) -> np.ndarray:
    """int16 in steps of 0.0001, NaN as MISSING: the most steps that are, divided, not above the value."""
    known = np.nan_to_num(values)
    steps = np.round(known * STEPS)  # 0.819 * 10000 is below 8190, but 8190 / 10000 is 0.819
    steps -= steps / STEPS > known
    steps = np.clip(steps, -32767, 32767)
    whole: np.ndarray = np.where(np.isnan(values), MISSING, steps).astype(np.int16)
    return whole


def _packed(values: np.ndarray) -> list[Any]:
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return [LETTERS[values.dtype], base64.b64encode(little.tobytes()).decode("ascii")]
