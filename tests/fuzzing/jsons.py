"""JSON texts that are harmed as values (another type, another size, another key) and as texts."""

import json
import random
from collections.abc import Callable
from typing import Any

from fuzzing.bytewise import bytewise, integer

_PATHS = (
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    "",
    ".",
    "/",
    "a/../../b",
    "trials",
    "run.json",
    "C:\\x",
    "~/x",
    "\0",
)
_TEXTS = (
    *("x" * 5000, "x" * 200_000, "\ud800", "line\nline", "\x1b[2J\x1b[31mred", "\u202etxt", "\U0001f600", "é" * 300),
    *("%s%n", "{0}", "__class__", "Traceback (most recent call last):", "nan", "1e999", "0" * 4000, "\x7f", "\t"),
)
_NUMBERS = (0.0, -0.0, 0.5, 1.5, -1.5, 1e-320, 1e308, 1e999, -1e999, float("nan"), 10**18, 10**30, 10**400, -(10**30))
_LITERALS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000, "1." + "0" * 5000 + "1", "1e-9999", "01")


def strange(chance: random.Random) -> Any:
    """A value that is seldom expected."""
    which = chance.randrange(8)
    if which == 0:
        return integer(chance)
    if which == 1:
        return chance.choice(_NUMBERS)
    if which == 2:
        return chance.choice(_PATHS)
    if which == 3:
        return chance.choice(_TEXTS)
    if which == 4:
        return chance.choice((None, True, False, [], {}, [[]], [{}], {"": {}}, [None] * 3, [0] * 5000))
    if which == 5:
        return _nested(chance.choice((2, 30, 90, 150)), chance)
    if which == 6:
        return {chance.choice((*_TEXTS, *_PATHS, "digest", "name")): strange(chance)}
    return [strange(chance) for _ in range(chance.randrange(4))]


def _nested(depth: int, chance: random.Random) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def harmed_value(value: Any, chance: random.Random) -> Any:
    """The value with one to three harms somewhere within it."""
    whole = {"": json.loads(json.dumps(value))}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []
        _find_places(whole, places)
        inside, key = chance.choice(places)
        _harm(inside, key, chance)
    harmed = whole.get("")
    return harmed if len(json.dumps(harmed)) < 10**6 else None  # harm upon harm may make it very large


def _find_places(value: Any, places: list[tuple[Any, Any]]) -> None:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys[:60]:
        places.append((value, key))
        if len(places) < 500:
            _find_places(value[key], places)


def _harm(inside: Any, key: Any, chance: random.Random) -> None:
    value, which = inside[key], chance.random()
    if isinstance(value, bool | int | float) and which < 0.5:
        inside[key] = chance.choice(
            (
                value + 1,
                value - 1,
                -value,
                value * 2,
                value / 2 if abs(value) < 2**60 else 0.5,
                str(value)[:99],
                integer(chance),
            )
        )
    elif isinstance(value, list) and which < 0.3:
        many = value[:1] * 1000 if len(str(value[:1])) < 500 else value
        inside[key] = chance.choice((value[1:], value + value, value[::-1], [], many, {"0": value}))
    elif isinstance(value, str) and which < 0.2:
        inside[key] = chance.choice(
            (value + "x", value.upper(), value[:-1], value[:500] * 50, f"../{value}", f"/{value}")
        )
    elif which < 0.85:
        inside[key] = strange(chance)
    elif which < 0.95 and key != "":
        del inside[key]
    elif isinstance(inside, dict) and key != "":
        inside[chance.choice(("new", "__init__", "examples", "kinds", key + " "))] = strange(chance)


def harmed_json(value: Any, chance: random.Random) -> bytes:
    """The bytes of a JSON file that held the value."""
    which = chance.random()
    if which < 0.75:
        return _dumped(harmed_value(value, chance))
    text = _dumped(value)
    if which < 0.85:
        return bytewise(text, chance)
    return chance.choice(_TEXT_HARMS)(text.decode(), chance)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=True).encode()


def _literal(text: str, chance: random.Random) -> bytes:
    """Numbers that JSON does not have, or nobody needs."""
    places = [at for at, letter in enumerate(text) if letter == ":"]
    at = chance.choice(places) + 1 if places else 0
    end = min((place for place in (text.find(mark, at) for mark in ",}\n") if place > 0), default=len(text))
    return (text[:at] + chance.choice(_LITERALS) + text[end:]).encode()


def _deep(text: str, chance: random.Random) -> bytes:
    depth, (left, right) = chance.choice((200, 2000, 100_000)), chance.choice((("[", "]"), ('{"a":', "}")))
    return chance.choice(
        (left * depth + "0" + right * depth, text.replace("{", "{" + f'"deep": {left * depth}', 1), left * depth)
    ).encode()


def _twice(text: str, chance: random.Random) -> bytes:
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    return "\n".join([*lines[:at], *[lines[at]] * 2, *lines[at + 1 :]]).encode()


def _encoded(text: str, chance: random.Random) -> bytes:
    return text.encode(chance.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cp037")))


def _other(_: str, chance: random.Random) -> bytes:
    return chance.choice(
        (b"", b"null", b"[]", b"{}", b"0", b'""', b"\xff\xfe", b"\x00" * 10, b'{"format": 1}', b"{" * 9)
    )


_TEXT_HARMS: tuple[Callable[[str, random.Random], bytes], ...] = (_literal, _literal, _deep, _twice, _encoded, _other)
