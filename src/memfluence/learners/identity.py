"""The identity of a user's code, as JSON: enough to notice that a run is being continued with something else.

Identified are

- plain values, and lists, tuples, sets and dicts of them: by themselves; arrays and tensors by a digest of their bytes;
- functions: by their compiled code, their defaults, their closure and the globals that they name;
- classes of the user's: by their bases and members; objects of such classes: by their attributes;
- estimators: by their class, `get_params` and what else they hold;
- modules of the user's: by a digest of their file; installed code: by its name.

All else is named under "not_identified". The JSON is the same in every process of one version of Python: it holds no
address, and it does not depend on the order of a set.
"""

import dis
import functools
import hashlib
import importlib.util
import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path, PurePath
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from memfluence.records import canonical_json, digest

FILE_MODULE_PREFIX = "memfluence_learner_"  # of modules that `resolve` loads from a file

_VERSION = 2
# Words of a description that only the first version or only this one has for some value.
_OF_ONE_VERSION = {
    *("identity", "not_identified", "function", "class", "object", "wrapper", "compiled", "of", "code", "closure"),
    *("globals", "imports", "attributes", "state", "content", "path", "made_by", "arguments", "entries", "items"),
}
_DEEPEST = 60  # levels of values within values; Python's own limit is not far above
_LONGEST = 500  # characters of JSON of a part that are kept as they are; a longer one stands for its digest
_INSTALLED_FOLDERS = {"site-packages", "dist-packages"}
_INSTALLED_ROOTS = (Path(os.__file__).parent, Path(__file__).parents[1])  # the standard library and this package
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, str, int, float)


def identity(name: str, value: Any, covered: str | None = None) -> dict[str, Any]:
    """`name` -> JSON that differs where `value` differs; "not_identified" -> the parts that it does not see, if any.

    "identity" -> 2 where the first version of this module wrote something else. `covered` is a module whose source is
    identified elsewhere: its functions and classes are identified by their names.
    """
    walk = _Walk(covered)
    found = {name: walk.of(value, "")}
    if walk.not_identified:
        found["not_identified"] = sorted(set(walk.not_identified))
    return found | {"identity": _VERSION} if walk.is_new else found


def may_be_the_same(before: Any, now: Any, common_only: bool = False) -> bool:
    """Whether JSON of the first version and of this one agree in all that both say.

    A digest stands for a long part, so digests of two versions cannot be compared.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        if "type" in now or "again" in {*before, *now} or ("digest" in before and "digest" in now):
            return True
        if "digest" in {*before, *now}:
            return not _OF_ONE_VERSION.isdisjoint({*before, *now})
        if not common_only and not before.keys() ^ now.keys() <= _OF_ONE_VERSION:
            return False
        both = (before.keys() & now.keys()) - {"not_identified"}
        return all(may_be_the_same(before[name], now[name], name == "globals") for name in both)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(may_be_the_same, before, now))
    return bool(before == now)


def called(function: Any, otherwise: str) -> str:
    """The name of a function or class for people, letters and digits alone; of a partial that of its function."""
    while isinstance(function, functools.partial):
        function = function.func
    return re.sub(r"\W", "", getattr(function, "__name__", type(function).__name__)) or otherwise


def file_sha256(file: str | None) -> str | None:
    """The digest of the file that a module was loaded from; None where there is none."""
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


class _Walk:
    """One way through a value and all that it reaches; `path` is what to call a part that cannot be told."""

    def __init__(self, covered: str | None) -> None:
        self.not_identified: list[str] = []
        self.is_new = False  # whether the first version would have said something else
        self._covered = covered
        self._met: dict[int, Any] = {}  # functions and classes, which stand for their number when they come again
        self._above: list[int] = []  # what the present value is part of

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
            found = self._described(value, path)
        finally:
            self._above.pop()
        return {"digest": digest(found)} if self._above and len(canonical_json(found)) > _LONGEST else found

    def _described(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is str:
            return value
        if kind in (float, complex):
            return repr(value)
        if kind in (list, tuple):
            return [self.of(entry, f"{path}[{k}]") for k, entry in enumerate(value)]
        if kind is dict:
            return self._dict(value, path)
        if kind in (set, frozenset) and all(type(entry) in (bool, int, float, str, type(None)) for entry in value):
            return {"set": sorted((self.of(entry, path) for entry in value), key=canonical_json)}
        if kind in (bytes, bytearray):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return f"{value.dtype}({value!s})"
        if isinstance(value, PurePath):
            return self._new({"path": str(value)})
        torch = sys.modules.get("torch")
        if kind in (np.ndarray, np.memmap) or (torch is not None and isinstance(value, torch.Tensor)):
            return self._array(value, path)
        return self._code(value, path)

    def _new(self, found: dict[str, Any]) -> dict[str, Any]:
        self.is_new = True
        return found

    def _dict(self, value: Mapping[Any, Any], path: str) -> Any:
        if all(type(key) is str for key in value):
            return {key: self.of(value[key], _join(path, key)) for key in sorted(value)}
        pairs = [[self.of(key, path), self.of(entry, path)] for key, entry in value.items()]
        return {"dict": sorted(pairs, key=canonical_json)}

    def _array(self, value: Any, path: str) -> Any:
        array = value
        if not isinstance(value, np.ndarray):
            try:
                array = value.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()
            except (RuntimeError, TypeError):  # sparse and other special tensors
                return self._unknown(value, path)
        elif value.dtype.hasobject:
            return self._unknown(value, path)
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return {"array": content, "dtype": str(value.dtype), "shape": list(value.shape)}

    def _code(self, value: Any, path: str) -> Any:
        if isinstance(value, ModuleType):
            return self._module(value.__name__, getattr(value, "__file__", None), path)
        if _is_known_by_name(value):
            return {"code": _qualified_name(value)}
        if (inner := _wrapped_by(value)) is not None:
            return self._new({"wrapper": _qualified_name(type(value)), "of": self.of(inner, path)})
        if isinstance(value, FunctionType | type):
            self._met[id(value)] = value
            return self._function(value, path) if isinstance(value, FunctionType) else self._class(value, path)
        if isinstance(value, MethodType):
            return {"method": self.of(value.__func__, path), "self": self.of(value.__self__, _join(path, "self"))}
        if isinstance(value, BuiltinMethodType):  # and functions of C, whose "self" is their module
            return self._new({"code": _qualified_name(value), "self": self.of(value.__self__, _join(path, "self"))})
        if isinstance(value, functools.partial):
            return {"partial": [self.of(part, path) for part in (value.func, value.args, value.keywords)]}
        if isinstance(value, property):
            return {"property": [self.of(part, path) for part in (value.fget, value.fset, value.fdel)]}
        return self._object(value, path)

    def _module(self, name: str, file: str | None, path: str) -> Any:
        if _is_installed(name):
            return {"module": name}
        sha256 = file_sha256(file)
        if sha256 is None:
            self.not_identified.append(path)
        return self._new({"module": name, "source_sha256": sha256})

    def _function(self, function: FunctionType, path: str) -> Any:
        found: dict[str, Any] = {"function": _qualified_name(function)}
        if self._is_covered(function):
            return found
        code, namespace = function.__code__, function.__globals__
        loaded, assigned, imported = _reach(code)
        cells = {name: cell for name, cell in zip(code.co_freevars, function.__closure__ or ()) if cell != CellType()}
        positional = function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
        parts = {
            "defaults": dict(zip(names, positional)) | (function.__kwdefaults__ or {}),
            "attributes": {name: one for name, one in vars(function).items() if not name.startswith("_")},
            # What the code sets itself is state, such as a cache: it says nothing about the next run.
            "closure": {name: cell.cell_contents for name, cell in cells.items() if name not in assigned},
            "globals": {name: namespace[name] for name in loaded if name in namespace and name not in assigned},
        }
        found |= {part: self._dict(content, path) for part, content in parts.items() if content}
        self.not_identified += [_join(path, name) for name in assigned & {*cells, *namespace}]
        modules = [self._import(name, namespace.get("__package__"), path) for name in sorted(imported)]
        if any(modules):
            found["imports"] = [one for one in modules if one]
        # With the version of Python that compiled it: others compile it differently. The source would lie where a line
        # holds two lambdas, where a file has changed since it was imported, and where a decorator stands between.
        compiled = hashlib.sha256(_text(code).encode()).hexdigest()[:32]
        return found | {"bytecode": f"{sys.implementation.cache_tag}:{compiled}"}

    def _is_covered(self, code: FunctionType | type) -> bool:
        return self._covered is not None and code.__module__ == self._covered

    def _import(self, name: str, package: str | None, path: str) -> Any:
        """A module of the user's that a function imports when it is called; None for an installed or missing one."""
        try:
            full = importlib.util.resolve_name(name, package)
            spec = importlib.util.find_spec(full.partition(".")[0])
        except Exception:  # importing it will raise as well, and say why
            return None
        if spec is None:
            return None
        folders = spec.submodule_search_locations  # of a package, of which it is not said which files are used
        if _is_installed_file(spec.origin or next(iter(folders or ()), "built-in")):
            return None
        return self._module(full, None if folders else spec.origin, _join(path, f"import {full}"))

    def _class(self, value: type, path: str) -> Any:
        found: dict[str, Any] = {"class": _qualified_name(value)}
        if self._is_covered(value):
            return found
        found["bases"] = [self.of(base, path) for base in value.__bases__ if base is not object]
        members = {name: one for name, one in vars(value).items() if _is_written(name, one)}
        return found | {"members": self._dict(members, _join(path, value.__name__))}

    def _object(self, value: Any, path: str) -> Any:
        kind = type(value)
        try:
            parameters = value.get_params(deep=False)
        except Exception:  # it has no such method, or another of that name
            parameters = None
        if isinstance(parameters, dict) and hasattr(value, "__dict__"):  # an estimator
            found = {"object": self.of(kind, path), "parameters": self.of(parameters, path)}
            state = {name: one for name, one in vars(value).items() if name not in parameters}
            return found | {"state": self.of(state, path)} if state else found
        for plain in _CONTAINERS:
            if isinstance(value, plain) and kind is not plain:
                return self._new({"object": self.of(kind, path), "content": self.of(plain(value), path)})
        if kind in (SimpleNamespace, Namespace) or (hasattr(value, "__dict__") and not _is_installed(kind.__module__)):
            state = vars(value)
            return self._new({"object": self.of(kind, path)} | ({"state": self.of(state, path)} if state else {}))
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # other people's objects may raise anything
            return self._unknown(value, path)
        if isinstance(reduced, str):  # the name of what is there once: a ufunc, a torch.dtype
            return {"object": f"{getattr(value, '__module__', None) or kind.__module__}.{reduced}"}
        if [*map(id, reduced[1])] == [id(kind)] and all(part is None for part in reduced[2:]):  # without state
            return {"object": self.of(kind, path)}
        return self._unknown(value, path)

    def _unknown(self, value: Any, path: str) -> Any:
        self.not_identified.append(path or type(value).__name__)
        return self._new({"type": _qualified_name(type(value))})


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _qualified_name(value: Any) -> str:
    """module.name of a class or function; for a module loaded from a file, the name alone, wherever the file lies."""
    module = getattr(value, "__module__", None) or ""
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__))
    return name if module.startswith(FILE_MODULE_PREFIX) or not module else f"{module}.{name}"


def _is_installed(module: str) -> bool:
    """Whether a module belongs to Python or to an installed package, which its name identifies well enough."""
    top = module.partition(".")[0]
    if top == "__main__":  # whatever runs it: a profiler, a notebook
        return False
    for name in (module, top):  # some parts of compiled packages have no file of their own
        if file := getattr(sys.modules.get(name), "__file__", None):
            return _is_installed_file(file)
    return top in sys.stdlib_module_names


def _is_installed_file(file: str) -> bool:
    path = Path(file)
    roots = any(path.is_relative_to(root) for root in _INSTALLED_ROOTS)
    return roots or file.startswith(("built-in", "frozen", "<frozen ")) or not _INSTALLED_FOLDERS.isdisjoint(path.parts)


def _is_known_by_name(value: Any) -> bool:
    """Whether the value is an installed class, or a function that an installed module has under its own name."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not _is_installed(module):
        return False
    if isinstance(value, type):
        return True
    try:
        return reduce(getattr, value.__qualname__.split("."), sys.modules[module]) is value
    except (AttributeError, KeyError):
        return False


def _wrapped_by(value: Any) -> Any:
    """The code of the user's in what an installed decorator, cache or compiler has made of it; None for other values.

    What torch.compile makes holds settings of this machine, which change nothing but speed.
    """
    if type(value).__name__ == "OptimizedModule":
        return getattr(value, "_orig_mod", None)
    if isinstance(value, functools.cached_property):
        return value.func
    if isinstance(value, FunctionType):
        installed = _is_installed_file(value.__code__.co_filename)
    else:
        installed = _is_installed(type(value).__module__)
    try:
        inner = getattr(value, "_torchdynamo_orig_callable", None) or value.__wrapped__ if installed else None
    except Exception:  # it wraps nothing; objects that stand for others may raise anything
        return None
    return inner if callable(inner) else None


def _is_written(name: str, member: Any) -> bool:
    """Whether a member of a class is its author's, not bookkeeping of Python's."""
    special = name.startswith("__") and name.endswith("__")
    method = callable(member) or isinstance(member, staticmethod | classmethod | property)
    return (method or not special) and not name.startswith("_abc_")


def _all_code(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of the functions and classes defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _all_code(inner)


def _reach(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """The globals that code uses, the outer variables that it sets itself, and the modules that it imports."""
    loaded, assigned, imported = set[str](), set[str](), set[str]()
    for part in _all_code(code):
        steps = [step for step in dis.get_instructions(part) if step.opname != "EXTENDED_ARG"]
        for k, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                loaded.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in part.co_freevars
            ):
                assigned.add(step.argval)
            elif step.opname == "IMPORT_NAME":  # after its level and the names wanted from it
                imported.add("." * steps[k - 2].argval + step.argval)
    return loaded, assigned, imported


def _text(constant: Any) -> str:
    """The instructions and constants of code, without the lines and the file that it was written in."""
    if isinstance(constant, CodeType):
        parts = (
            constant.co_name,
            constant.co_code.hex(),
            constant.co_exceptiontable.hex(),
            (constant.co_flags, constant.co_argcount, constant.co_posonlyargcount, constant.co_kwonlyargcount),
            (constant.co_names, constant.co_varnames, constant.co_freevars, constant.co_cellvars),
        )
        return f"code {parts!r} {_text(constant.co_consts)}"
    if isinstance(constant, tuple):
        return f"({', '.join(_text(part) for part in constant)})"
    if isinstance(constant, frozenset):  # in an order of the process's own
        return f"{{{', '.join(sorted(_text(part) for part in constant))}}}"
    return repr(constant)
