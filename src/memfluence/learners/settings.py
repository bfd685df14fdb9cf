"""Settings given as text, such as `epochs=30`, for learners that are dataclasses or scikit-learn estimators."""

import ast
import dataclasses
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from memfluence.errors import LearnerError, nearest

_BY_TYPE = (int, float, bool, str, tuple[int, ...])  # what text is read as


def parse_settings(learner: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for a dataclass: text is read by the type of its field, other values are taken as they are."""
    hints = typing.get_type_hints(learner)
    known = [field.name for field in dataclasses.fields(learner) if field.init]
    name = getattr(learner, "name", learner.__name__)
    parsed = {}
    for setting, value in settings.items():
        known_or_error(setting, known, f"{name} has no setting", "Its settings are")
        parsed[setting] = _read(value, hints[setting], name, setting)
    return parsed


def parse_options(
    learner: str,
    options: Mapping[str, inspect.Parameter],
    settings: Mapping[str, Any],
    *,
    recipe: Iterable[str],
    general: Iterable[str],
) -> dict[str, Any]:
    """Options of an architecture: text is read by the annotation, else by the type of the default, else as a literal.

    `recipe` are the settings that the recipe has and `general` those of any network, for the message about one that
    is none of these.
    """
    parsed: dict[str, Any] = {}
    for setting, value in settings.items():
        if setting not in options:
            listing = (
                f"Its architecture has {', '.join(sorted(options)) or 'none'}; any network has"
                f" {', '.join(sorted(general))}; its recipe has"
            )
            known_or_error(setting, recipe, f"{learner} has no setting", listing, also=[*options, *general])
        kinds = (options[setting].annotation, type(options[setting].default))
        parsed[setting] = _read(value, next((kind for kind in kinds if kind in _BY_TYPE), None), learner, setting)
    return parsed


def parse_literals(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without types: what reads as a Python literal is one (0.5, None, (3, 4)), the rest is text."""
    return {setting: _read(value, None, "", setting) for setting, value in settings.items()}


def _read(value: Any, kind: Any, learner: str, setting: str) -> Any:
    """Text read by the type that is wanted, or as a literal for a type that is none of `_BY_TYPE`."""
    if not isinstance(value, str) or kind is str:
        return value
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        if kind in (int, float):
            return kind(value)
        if kind == tuple[int, ...]:
            return tuple(int(part) for part in value.strip("()").split(",") if part.strip())
    except (KeyError, ValueError):
        expected = {int: "an integer", float: "a number", bool: "true or false"}.get(kind, "integers, like 256,128")
        raise LearnerError(f"the setting {setting!r} of {learner} must be {expected}; got {value!r}.") from None
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return value


def known_or_error(name: str, known: Iterable[str], problem: str, listing: str, *, also: Iterable[str] = ()) -> None:
    """Raise "<problem> 'name'; did you mean ...? <listing> ..." unless the name is known; `also` may be meant too."""
    names = sorted(known)
    if name in names:
        return
    close = nearest(name, [*names, *also])
    hint = f"; did you mean {close!r}?" if close else "."
    raise LearnerError(f"{problem} {name!r}{hint} {listing} {', '.join(names) or 'none'}.")


def require(learner: Any, setting: str, holds: bool, expected: str) -> None:
    """Raise "the setting ... of ... must be <expected>; got ..." unless it holds."""
    if not holds:
        name, got = learner.name, getattr(learner, setting)
        raise LearnerError(f"the setting {setting!r} of {name} must be {expected}; got {got!r}.")


def is_integer(value: Any, at_least: int) -> bool:
    """Whether a setting is an integer, which True is not, and not below the least."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def is_real(value: Any) -> bool:
    """Whether a setting is a number, which True is not; it may be infinite or NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool)
