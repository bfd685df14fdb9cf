"""Harm that any file can come to, and the numbers that parsers stumble over."""

import random
import struct
from collections.abc import Callable, Sequence

INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 9, 15, 16, 63, 64, 100, 127, 128, 255, 256, 1000, 4096, 32767, 32768, 65535, 65536),
    *(10**6, 2**24, 2**28, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    *(-1, -2, -128, -32768, -(2**31), -(2**63)),
)
_WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def integer(chance: random.Random) -> int:
    """A boundary, a neighbour of one, or a small number."""
    return chance.choice(INTEGERS) + chance.choice((0, 0, 0, -1, 1)) if chance.random() < 0.8 else chance.randrange(64)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def bytewise(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four harms; `others` are what it may be spliced with."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        content = chance.choice(_HARMS)(content or b"\0", chance, others)
    return content


def _flip(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def _set(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    found = bytearray(content)
    found[chance.randrange(len(found))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(found)


def _number(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    """A boundary over 1, 2, 4 or 8 bytes, in either byte order."""
    width = chance.choice(tuple(_WIDTHS))
    value = integer(chance) & (256**width - 1)
    at = chance.randrange(max(1, len(content) - width + 1))
    return content[:at] + struct.pack(chance.choice("<>") + _WIDTHS[width], value) + content[at + width :]


def _truncate(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    return cut(content, chance)


def _remove(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + content[at + chance.choice((1, 2, 4, 16, 100)) :]


def _repeat(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    at, length = chance.randrange(len(content)), chance.choice((1, 4, 16, 100))
    return content[:at] + content[at : at + length] * chance.choice((2, 3, 50)) + content[at + length :]


def _insert(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.randbytes(chance.choice((1, 2, 4, 30))) + content[at:]


def _zero(content: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    at, length = chance.randrange(len(content)), chance.choice((4, 16, 100))
    return content[:at] + bytes(min(length, len(content) - at)) + content[at + length :]


def _splice(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others) if others else content
    if chance.random() < 0.5:  # the same stretch of another file
        at, length = chance.randrange(len(content)), chance.choice((8, 64, 512))
        return content[:at] + other[at : at + length] + content[at + length :]
    return cut(content, chance) + other[chance.randrange(len(other) + 1) :]


_HARMS: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    *(_flip, _flip, _set, _number, _number, _truncate, _remove, _repeat, _insert, _zero, _splice),
)
