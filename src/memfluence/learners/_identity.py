"""What a piece of the user's code is, as JSON: enough to notice that a run is being continued with something else.

Plain values stand for themselves, arrays and tensors for their digest, functions for their compiled code and whatever
it reaches (defaults, closure, globals), classes for their members, estimators for their parameters and what they have
learnt, other objects for what pickle would store of them. Installed code stands for its name. The same in every process
of one version of Python: no addresses, no order of sets. What cannot be told is named, and stands for its type.
"""

import copyreg
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from memfluence.learners._code import bytecode, is_installed, is_installed_file, qualified_name, reach
from memfluence.learners._loading import file_sha256
from memfluence.records import canonical_json, digest

__all__ = ["identity"]

_DEEPEST = 60  # levels of objects within objects; Python's own limit is not far above
_LONGEST = 500  # characters of JSON of a part that are kept as they are; a longer one stands for its digest
# Bags of values, of which one that cannot be told does not spoil the others.
_BAGS = ("argparse", "collections", "types")


def identity(value: Any, *, covered: str | None = None) -> tuple[Any, list[str]]:
    """A JSON-able value that differs where `value` differs, and the names of the parts that it does not see.

    `covered` is a module whose source is identified elsewhere: its functions and classes stand for their names.
    """
    walk = _Walk(covered)
    return walk.of(value, ""), sorted(set(walk.not_identified))


class _UnknownError(Exception):
    """Part of an object that has to be identified as a whole or not at all cannot be told."""


class _Walk:
    def __init__(self, covered: str | None) -> None:
        self.not_identified: list[str] = []
        self._covered = covered
        self._met: dict[int, Any] = {}  # functions and classes, which stand for their number when they come again
        self._above: list[int] = []  # objects that the present one is part of
        self._whole = False

    def of(self, value: Any, path: str) -> Any:
        """The value's identity; `path` is what to call it if it has none."""
        if value is None or isinstance(value, bool | int | str):
            found = value if type(value) in (type(None), bool, int, str) else self._object(value, path)
        elif type(value) in (float, complex):
            found = repr(value)
        elif isinstance(value, np.generic) and not value.dtype.hasobject:
            found = f"{value.dtype}({value!s})"
        elif id(value) in self._above:
            found = {"above": self._above.index(id(value))}
        elif id(value) in self._met:
            found = {"again": list(self._met).index(id(value))}
        elif len(self._above) == _DEEPEST:
            found = self._unknown(value, path)
        else:
            self._above.append(id(value))
            try:
                found = self._compound(value, path)
            finally:
                self._above.pop()
        long = len(self._above) > 0 and isinstance(found, str | list | dict) and len(canonical_json(found)) > _LONGEST
        return {"digest": digest(found)} if long else found

    def _compound(self, value: Any, path: str) -> Any:
        if type(value) in (list, tuple):
            return [self.of(entry, f"{path}[{k}]") for k, entry in enumerate(value)]
        if type(value) is dict:
            return self._dict(value, path)
        if type(value) in (set, frozenset):
            return {"set": sorted((self.of(entry, path) for entry in value), key=canonical_json)}
        if type(value) in (bytes, bytearray):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if type(value) in (np.ndarray, np.memmap):
            return self._array(value, path)
        if _is_tensor(value):
            return self._tensor(value, path)
        if isinstance(value, ModuleType):
            return self._module(value.__name__, file_sha256(value), path)
        if _is_known_by_name(value):
            return {"code": qualified_name(value)}
        if isinstance(value, type):
            self._met[id(value)] = value
            return self._class(value, path)
        if isinstance(value, FunctionType):
            self._met[id(value)] = value
            return self._function(value, path)
        if isinstance(value, MethodType):
            return {"method": self.of(value.__func__, path), "self": self.of(value.__self__, _join(path, "self"))}
        if isinstance(value, functools.partial):
            return {"partial": [self.of(part, path) for part in (value.func, value.args, value.keywords)]}
        if isinstance(value, property):
            return {"property": [self.of(part, path) for part in (value.fget, value.fset, value.fdel)]}
        if isinstance(value, functools.cached_property):
            return {"property": self.of(value.func, path)}
        if callable(wrapped := getattr(value, "__wrapped__", None)):  # staticmethod, lru_cache, compilers of functions
            return {"wrapper": qualified_name(type(value)), "of": self.of(wrapped, path)}
        return self._estimator(value, path) or self._object(value, path)

    def _dict(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str for key in value):
            return {key: self.of(value[key], _join(path, key)) for key in sorted(value)}
        pairs = [[self.of(key, path), self.of(entry, f"{path}[{key!s:.40}]")] for key, entry in value.items()]
        return {"dict": sorted(pairs, key=canonical_json)}

    def _array(self, value: np.ndarray, path: str) -> Any:
        if value.dtype.hasobject:
            return {"objects": self.of(value.tolist(), path), "shape": list(value.shape)}
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"array": content, "dtype": str(value.dtype), "shape": list(value.shape)}

    def _tensor(self, value: Any, path: str) -> Any:
        import torch

        try:
            content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError):  # sparse, quantised, nested
            return self._unknown(value, path)
        return {"array": hashlib.sha256(content).hexdigest(), "dtype": str(value.dtype), "shape": list(value.shape)}

    def _module(self, name: str, sha256: str | None, path: str) -> Any:
        if is_installed(name):
            return {"module": name}
        if sha256 is None:
            self.not_identified.append(path)
        return {"module": name, "source_sha256": sha256}

    def _function(self, function: FunctionType, path: str) -> Any:
        found: dict[str, Any] = {"function": qualified_name(function)}
        code, own = function.__code__, not is_installed_file(function.__code__.co_filename)
        if own and function.__module__ == self._covered:
            return found
        reached = reach(code)
        # What the code sets itself is state, such as a cache, and no two runs would find the same in it.
        assigned = reached.assigned
        cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        closure = {name: cell.cell_contents for name, cell in cells.items() if name not in assigned and _is_set(cell)}
        parts = {
            "defaults": list(function.__defaults__ or ()),
            "keyword_defaults": function.__kwdefaults__ or {},
            "closure": closure,
            "attributes": {name: one for name, one in vars(function).items() if name != "__wrapped__"},
        }
        found |= {part: self.of(content, path) for part, content in parts.items() if content}
        if not own:  # a decorator of an installed package around the user's function
            return found | {"code": code.co_qualname}
        used = {name for name in reached.globals if name.partition(".")[0] in function.__globals__}
        own_state = {name.partition(".")[0] for name in used} & assigned | assigned & set(cells)
        self.not_identified += [_join(path, name) for name in own_state]
        globals_ = dict(_global(name, function.__globals__) for name in used if name.partition(".")[0] not in assigned)
        if globals_:
            found["globals"] = {name: self.of(globals_[name], _join(path, name)) for name in sorted(globals_)}
        if imports := self._imports(reached.imports, function.__globals__, path):
            found["imports"] = imports
        return found | {"bytecode": bytecode(code)}

    def _imports(self, imports: set[tuple[int, str]], namespace: Mapping[str, Any], path: str) -> list[Any]:
        """The user's modules that a function imports when it is called."""
        found = []
        for level, name in sorted(imports):
            try:
                full = importlib.util.resolve_name("." * level + name, namespace.get("__package__"))
                top = importlib.util.find_spec(full.partition(".")[0])
                if top is None or top.origin is None or is_installed(top.name) or is_installed_file(top.origin):
                    continue
                spec = importlib.util.find_spec(full)
            except (ImportError, ValueError):  # it will fail in training as well
                continue
            if spec is None or spec.origin is None or spec.submodule_search_locations:  # which parts of it are used?
                self.not_identified.append(_join(path, f"import {name}"))
            else:
                found.append(self._module(full, file_sha256(spec.origin), path))
        return found

    def _class(self, value: type, path: str) -> Any:
        found: dict[str, Any] = {"class": qualified_name(value)}
        if value.__module__ == self._covered:
            return found
        found["bases"] = [self.of(base, path) for base in value.__bases__ if base is not object]
        members = {name: one for name, one in vars(value).items() if _is_written(name, one)}
        return found | {"members": self._dict(members, _join(path, value.__name__))}

    def _estimator(self, value: Any, path: str) -> Any:
        """An object with scikit-learn's parameters, and whatever else it holds: what it has learnt, if it is fitted."""
        try:
            parameters = value.get_params(deep=False)
            own = vars(value)
        except Exception:
            return None
        if not isinstance(parameters, dict):
            return None
        found = {"object": self.of(type(value), path), "parameters": self.of(parameters, path)}
        state = {name: one for name, one in own.items() if name not in parameters}
        return found | {"state": self._as_a_whole(value, path, lambda: self.of(state, path))} if state else found

    def _object(self, value: Any, path: str) -> Any:
        """Any other object, by what pickle would store."""
        module = type(value).__module__
        if not is_installed(module) or module.partition(".")[0] in _BAGS:
            return self._reduced(value, path)
        return self._as_a_whole(value, path, lambda: self._reduced(value, path))

    def _as_a_whole(self, value: Any, path: str, look: Callable[[], Any]) -> Any:
        """A writer of logs is not told by its settings if it also holds a thread: it is a resource, not a setting."""
        if self._whole:
            return look()
        before = self._met.copy(), self.not_identified.copy()
        self._whole = True
        try:
            return look()
        except _UnknownError:
            self._met, self.not_identified = before
            self._whole = False
            return self._unknown(value, path)
        finally:
            self._whole = False

    def _reduced(self, value: Any, path: str) -> Any:
        try:
            reducer = copyreg.dispatch_table.get(type(value))
            reduced: Any = reducer(value) if reducer else value.__reduce_ex__(4)
            if isinstance(reduced, str):
                return {"object": f"{getattr(value, '__module__', None) or type(value).__module__}.{reduced}"}
            make, arguments, state, entries, items = (*reduced, None, None, None)[:5]
            entries, items = list(entries or ()), dict(items or ())
        except Exception:
            return self._unknown(value, path)
        found = {"object": self.of(type(value), path)}
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            arguments = arguments[1:]  # after its class
        else:
            found["made_by"] = self.of(make, path)
        parts = {"arguments": list(arguments), "state": state, "entries": entries, "items": items}
        return found | {name: self.of(part, path) for name, part in parts.items() if part not in (None, [], {})}

    def _unknown(self, value: Any, path: str) -> Any:
        if self._whole:
            raise _UnknownError
        self.not_identified.append(path or type(value).__name__)
        return {"type": qualified_name(type(value))}
