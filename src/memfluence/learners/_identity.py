"""What a piece of the user's code is, as JSON: enough to notice that a run is being continued with something else.

Plain values stand for themselves, arrays for their digest, functions for the hash of their source, estimators for their
class and parameters. What a function reaches through closures, globals or other files is not seen.
"""

import functools
import hashlib
import inspect
import re
from typing import Any

import numpy as np

__all__ = ["FILE_MODULE_PREFIX", "identity", "qualified_name", "source_sha256"]

FILE_MODULE_PREFIX = "memfluence_learner_"  # modules loaded from a file by path, see `_source`
_DEEPEST = 8  # an object graph below this is told apart by its text alone


def identity(value: Any, depth: int = 0) -> Any:
    """A JSON-able value that differs where `value` differs, and is the same in every process."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.generic):
        return repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return {"array": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(), "shape": list(value.shape)}
    if depth < _DEEPEST:
        if isinstance(value, dict):
            return {str(key): identity(value[key], depth + 1) for key in sorted(value, key=str)}
        if isinstance(value, list | tuple):
            return [identity(entry, depth + 1) for entry in value]
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return {"partial": [identity(part, depth + 1) for part in parts]}
        if inspect.isroutine(value) or isinstance(value, type):
            return {"code": qualified_name(value), "source_sha256": source_sha256(value)}
        state = getattr(value, "__dict__", None)
        if hasattr(value, "get_params") or state is not None:
            parameters = value.get_params(deep=False) if hasattr(value, "get_params") else state
            return {"object": identity(type(value), depth + 1), "parameters": identity(parameters, depth + 1)}
    return _without_addresses(repr(value))


def qualified_name(value: Any) -> str:
    """module.name of a class or function; for a module loaded from a file, the name alone, wherever the file lies."""
    module = getattr(value, "__module__", None) or ""
    name = str(getattr(value, "__qualname__", type(value).__name__))
    return name if module.startswith(FILE_MODULE_PREFIX) else f"{module}.{name}"


def source_sha256(value: Any) -> str | None:
    """Hash of the source of a function or class of the user's own; None for installed code."""
    try:
        if "site-packages" in (inspect.getsourcefile(value) or ""):
            return None
        source = inspect.getsource(value)
    except (OSError, TypeError):  # typed into a prompt, or written in C
        code = getattr(value, "__code__", None)
        if code is None:
            return None
        source = code.co_code.hex() + _without_addresses(repr((code.co_names, code.co_consts)))
    return hashlib.sha256(source.encode()).hexdigest()


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)
