"""What a piece of the user's code is, as JSON: enough to notice that a run is being continued with something else.

Plain values stand for themselves, arrays and tensors for their digest, functions for their compiled code and what it
reaches (defaults, closure, globals), classes for their members, estimators for their parameters and what they have
learnt, other objects for what pickle would store of them, installed code for its name. It is the same in every process
of one version of Python: no addresses, no order of sets. What cannot be told stands for its type, and is named.
"""

import copy
import copyreg
import functools
import hashlib
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from memfluence.learners._code import (
    bytecode,
    cells_of,
    defaults_of,
    file_sha256,
    global_value,
    is_installed,
    is_installed_file,
    is_known_by_name,
    own_import,
    qualified_name,
    reach,
)
from memfluence.learners._kinds import (
    compiled_from,
    is_circumstance,
    is_tensor,
    is_written,
    parameters_of,
    tensor_bytes,
    wrapped_by,
)
from memfluence.records import canonical_json, digest

__all__ = ["identity"]

_DEEPEST = 60  # levels of values within values; Python's own limit is not far above
_LONGEST = 500  # characters of JSON of a part that are kept as they are; a longer one stands for its digest
_BAGS = ("argparse", "collections", "types")  # of values, where one that cannot be told does not spoil the others


def identity(name: str, value: Any, covered: str | None = None) -> dict[str, Any]:
    """`name` -> JSON that differs where `value` differs; and "not_identified" -> what it does not see, if anything.

    `covered` is a module whose source is identified elsewhere: its functions and classes stand for their names.
    """
    walk = _Walk(covered)
    found = {name: walk.of(value, "")}
    return found | {"not_identified": sorted(set(walk.not_identified))} if walk.not_identified else found


class _UnknownError(Exception):
    """Part of an object that is identified as a whole or not at all cannot be told."""


class _Walk:
    """One way through a value and all that it reaches; `path` is what to call a part that cannot be told."""

    def __init__(self, covered: str | None) -> None:
        self.not_identified: list[str] = []
        self._covered = covered
        self._met: dict[int, Any] = {}  # functions and classes, which stand for their number when they come again
        self._above: list[int] = []  # what the present value is part of
        self._whole = False  # whether a part that cannot be told spoils the whole

    def of(self, value: Any, path: str) -> Any:
        if value is None or type(value) in (bool, int):
            return value
        if id(value) in self._met:
            return {"again": list(self._met).index(id(value))}
        if id(value) in self._above:
            return {"above": self._above.index(id(value))}
        if len(self._above) == _DEEPEST:
            return self._unknown(value, path)
        self._above.append(id(value))
        try:
            found = self._look(value, path)
        finally:
            self._above.pop()
        return {"digest": digest(found)} if self._above and len(canonical_json(found)) > _LONGEST else found

    def _look(self, value: Any, path: str) -> Any:
        if type(value) is str:
            return value
        if type(value) in (float, complex):
            return repr(value)
        if type(value) in (list, tuple):
            return [self.of(entry, f"{path}[{k}]") for k, entry in enumerate(value)]
        if type(value) is dict:
            return self._dict(value, path)
        if type(value) in (set, frozenset):
            return {"set": sorted((self._apart(entry, path) for entry in value), key=canonical_json)}
        if type(value) in (bytes, bytearray):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return f"{value.dtype}({value!s})"
        if type(value) in (np.ndarray, np.memmap) or is_tensor(value):
            return self._array(value, path)
        if is_circumstance(value):
            return self._unknown(value, path)
        return self._look_at_code(value, path)

    def _look_at_code(self, value: Any, path: str) -> Any:
        if isinstance(value, ModuleType):
            return self._module(value, path)
        if is_known_by_name(value):
            return {"code": qualified_name(value)}
        if (compiled := compiled_from(value)) is not None:
            return {"compiled": self.of(compiled, path)}
        if isinstance(value, FunctionType | type):
            self._met[id(value)] = value
            return self._function(value, path) if isinstance(value, FunctionType) else self._class(value, path)
        if isinstance(value, MethodType):
            return {"method": self.of(value.__func__, path), "self": self.of(value.__self__, _join(path, "self"))}
        if isinstance(value, functools.partial):
            return {"partial": [self.of(part, path) for part in (value.func, value.args, value.keywords)]}
        if isinstance(value, property):
            return {"property": [self.of(part, path) for part in (value.fget, value.fset, value.fdel)]}
        if (wrapped := wrapped_by(value)) is not None:
            return {"wrapper": qualified_name(type(value)), "of": self.of(wrapped, path)}
        parameters = parameters_of(value)
        return self._object(value, path) if parameters is None else self._estimator(value, parameters, path)

    def _dict(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str for key in value):
            return {key: self.of(value[key], _join(path, key)) for key in sorted(value)}
        pairs = [[self.of(key, path), self.of(entry, path)] for key, entry in value.items()]
        return {"dict": sorted(pairs, key=canonical_json)}

    def _apart(self, entry: Any, path: str) -> Any:
        """An entry of a set, identified as if there were no others: their order is the process's own."""
        walk = copy.copy(self)
        walk._met, walk._above = self._met.copy(), self._above.copy()
        return walk.of(entry, path)

    def _array(self, value: Any, path: str) -> Any:
        if is_tensor(value):
            content = tensor_bytes(value)
            if content is None:
                return self._unknown(value, path)
        elif value.dtype.hasobject:
            return {"objects": self.of(value.tolist(), path), "shape": list(value.shape)}
        else:
            content = np.ascontiguousarray(value).tobytes()
        return {"array": hashlib.sha256(content).hexdigest(), "dtype": str(value.dtype), "shape": list(value.shape)}

    def _module(self, module: ModuleType, path: str) -> Any:
        if is_installed(module.__name__):
            return {"module": module.__name__}
        return self._own_module(module.__name__, getattr(module, "__file__", None), path)

    def _own_module(self, name: str, file: str | None, path: str) -> Any:
        sha256 = file_sha256(file)
        if sha256 is None:
            self.not_identified.append(path)
        return {"module": name, "source_sha256": sha256}

    def _function(self, function: FunctionType, path: str) -> Any:
        found: dict[str, Any] = {"function": qualified_name(function)}
        code, namespace = function.__code__, function.__globals__
        own = not is_installed_file(code.co_filename)
        if own and self._is_covered(function):
            return found
        reached, cells = reach(code), cells_of(function)
        used = dict(global_value(name, namespace) for name in reached.globals if name.partition(".")[0] in namespace)
        parts = {
            "defaults": defaults_of(function),
            "attributes": {name: one for name, one in vars(function).items() if not name.startswith("_")},
            # What the code sets itself is state, such as a cache: it says nothing about the next run.
            "closure": {name: one for name, one in cells.items() if name not in reached.assigned},
            "globals": {name: one for name, one in used.items() if own and name not in reached.assigned},
        }
        found |= {part: self._dict(content, path) for part, content in parts.items() if content}
        if not own:  # what an installed decorator has made of a function of the user's, which is in the closure
            return found | {"code": code.co_qualname}
        self.not_identified += [_join(path, name) for name in reached.assigned & {*cells, *used}]
        imports = [self._import(level, name, namespace, path) for level, name in sorted(reached.imports)]
        if any(imports):
            found["imports"] = [one for one in imports if one]
        return found | {"bytecode": bytecode(code)}

    def _is_covered(self, code: FunctionType | type) -> bool:
        return self._covered is not None and code.__module__ == self._covered

    def _import(self, level: int, name: str, namespace: Mapping[str, Any], path: str) -> Any:
        """A module of the user's that a function imports when it is called; None for others."""
        found = own_import("." * level + name, namespace.get("__package__"))
        return found and self._own_module(*found, _join(path, f"import {name}"))

    def _class(self, value: type, path: str) -> Any:
        found: dict[str, Any] = {"class": qualified_name(value)}
        if self._is_covered(value):
            return found
        found["bases"] = [self.of(base, path) for base in value.__bases__ if base is not object]
        members = {name: one for name, one in vars(value).items() if is_written(name, one)}
        return found | {"members": self._dict(members, _join(path, value.__name__))}

    def _estimator(self, value: Any, parameters: dict[str, Any], path: str) -> Any:
        """An object with scikit-learn's parameters and all else that it holds: what it has learnt, if it is fitted."""
        found = {"object": self.of(type(value), path), "parameters": self.of(parameters, path)}
        state = {name: one for name, one in vars(value).items() if name not in parameters}
        if state:
            found["state"] = self._as_a_whole(value, path, lambda: self.of(state, path))
        return found

    def _object(self, value: Any, path: str) -> Any:
        """Any other object, by what pickle would store."""
        module = str(type(value).__module__)
        if not is_installed(module) or module.partition(".")[0] in _BAGS:
            return self._reduced(value, path)
        return self._as_a_whole(value, path, lambda: self._reduced(value, path))

    def _as_a_whole(self, value: Any, path: str, look: Callable[[], Any]) -> Any:
        """By all its parts or not at all: what holds a thread or a file is a resource, and its numbers no settings."""
        if self._whole:
            return look()
        met, named = len(self._met), len(self.not_identified)
        self._whole = True
        try:
            return look()
        except _UnknownError:  # what was met on the way has been told nowhere
            for key in list(self._met)[met:]:
                del self._met[key]
            del self.not_identified[named:]
        finally:
            self._whole = False
        return self._unknown(value, path)

    def _reduced(self, value: Any, path: str) -> Any:
        try:
            reducer = copyreg.dispatch_table.get(type(value))
            reduced: Any = reducer(value) if reducer else value.__reduce_ex__(4)
            if isinstance(reduced, str):  # the name of something that is there once
                return {"object": f"{getattr(value, '__module__', None) or type(value).__module__}.{reduced}"}
            make, arguments, state, entries, items = (*reduced, None, None, None)[:5]
            entries, items = list(entries or ()), dict(items or ())
        except Exception:  # what other people's objects raise when they cannot be pickled
            return self._unknown(value, path)
        found = {"object": self.of(type(value), path)}
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            arguments = arguments[1:]  # after its class
        else:
            found["made_by"] = self.of(make, path)
        parts = {"arguments": arguments, "entries": entries, "items": items}
        found |= {name: self.of(part, path) for name, part in parts.items() if part}
        return found if state is None else found | {"state": self.of(state, path)}

    def _unknown(self, value: Any, path: str) -> Any:
        if self._whole:
            raise _UnknownError
        self.not_identified.append(path or type(value).__name__)
        return {"type": qualified_name(type(value))}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
