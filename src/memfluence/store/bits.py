"""Bits packed along examples in little order: example i is bit i % 8 of byte i // 8, padding bits are 0."""

import numpy as np

__all__ = ["pack", "packed_width", "unpack"]


def packed_width(n: int) -> int:
    """Bytes that n bits take."""
    return (n + 7) // 8


def pack(bits: np.ndarray) -> np.ndarray:
    """(..., n) bool -> (..., ceil(n / 8)) uint8."""
    return np.packbits(bits, axis=-1, bitorder="little")


def unpack(packed: np.ndarray, n: int) -> np.ndarray:
    """(..., ceil(n / 8)) uint8 -> (..., n) bool."""
    return np.unpackbits(packed, axis=-1, count=n, bitorder="little").view(bool)
