"""Compiled code: where it comes from, a digest of what it does, and what it reaches outside itself."""

import dis
import hashlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

__all__ = [
    "FILE_MODULE_PREFIX",
    "Reach",
    "bytecode",
    "cells_of",
    "defaults_of",
    "file_sha256",
    "global_value",
    "is_installed",
    "is_installed_file",
    "is_known_by_name",
    "own_import",
    "qualified_name",
    "reach",
]

FILE_MODULE_PREFIX = "memfluence_learner_"  # modules loaded from a file by path, see `_loading`

_INSTALLED_FOLDERS = {"site-packages", "dist-packages"}
_INSTALLED_ROOTS = (Path(os.__file__).parent, Path(__file__).parents[1])  # the standard library and this package
# Instructions by which code uses and sets names from outside.
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_GLOBAL_STORES = ("STORE_GLOBAL", "DELETE_GLOBAL")
_CLOSURE_STORES = ("STORE_DEREF", "DELETE_DEREF")
_DEEPEST_ATTRIBUTE = 8


class Reach(NamedTuple):
    """Names that some code and the functions inside it use from outside."""

    globals: set[str]  # with the attributes taken from them: "np.linalg.norm"
    assigned: set[str]  # globals and variables of enclosing functions that the code sets itself
    imports: set[tuple[int, str]]  # (level, module) of import statements


def is_installed(module: str) -> bool:
    """Whether a module belongs to Python or to an installed package, which its name identifies well enough."""
    top = module.partition(".")[0]
    if top == "__main__":  # whatever runs it: a profiler, a notebook
        return False
    for name in (module, top):  # some parts of compiled packages have no file of their own
        if file := getattr(sys.modules.get(name), "__file__", None):
            return is_installed_file(file)
    return top in sys.stdlib_module_names


def is_installed_file(file: str) -> bool:
    """As `is_installed`, for the file that code was compiled from."""
    path = Path(file)
    return (
        file.startswith("<frozen ")
        or not _INSTALLED_FOLDERS.isdisjoint(path.parts)
        or any(path.is_relative_to(root) for root in _INSTALLED_ROOTS)
    )


def is_known_by_name(value: Any) -> bool:
    """Whether the value is an installed class, or a function that an installed module has under its own name."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not is_installed(module):
        return False
    if isinstance(value, type):
        return True
    try:
        return reduce(getattr, value.__qualname__.split("."), sys.modules[module]) is value
    except (AttributeError, KeyError):
        return False


def file_sha256(file: str | None) -> str | None:
    """Hash of the file that a module was loaded from; None where there is none."""
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def qualified_name(value: Any) -> str:
    """module.name of a class or function; for a module loaded from a file, the name alone, wherever the file lies."""
    module = getattr(value, "__module__", None) or ""
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__))
    return name if module.startswith(FILE_MODULE_PREFIX) or not module else f"{module}.{name}"


def bytecode(code: CodeType) -> str:
    """Digest of what the code does, with the version of Python that compiled it: others compile it differently.

    The source would lie where a line holds two lambdas, where a file has changed since it was imported, and where a
    decorator stands between.
    """
    return f"{sys.implementation.cache_tag}:{hashlib.sha256(_text(code).encode()).hexdigest()[:32]}"


def _text(constant: Any) -> str:
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


def reach(code: CodeType) -> Reach:
    """What the code and the functions inside it use from outside."""
    found = Reach(set(), set(), set())
    for one in _with_inner(code):
        steps = [step for step in dis.get_instructions(one) if step.opname != "EXTENDED_ARG"]
        for k, step in enumerate(steps):
            if step.opname in _LOADS:
                following = steps[k + 1 : k + 1 + _DEEPEST_ATTRIBUTE]
                attributes = itertools.takewhile(lambda step: step.opname in _ATTRIBUTES, following)
                found.globals.add(".".join([step.argval, *(attribute.argval for attribute in attributes)]))
            elif step.opname in _GLOBAL_STORES or (step.opname in _CLOSURE_STORES and step.argval in one.co_freevars):
                found.assigned.add(step.argval)
            elif step.opname == "IMPORT_NAME":  # after its level and the names wanted from it
                found.imports.add((steps[k - 2].argval, step.argval))
    return found


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def cells_of(function: FunctionType) -> dict[str, Any]:
    """The variables of enclosing functions that the function uses, those that are set."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def defaults_of(function: FunctionType) -> dict[str, Any]:
    """Default values by parameter."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return dict(zip(names, values)) | (function.__kwdefaults__ or {})


def global_value(dotted: str, namespace: Mapping[str, Any]) -> tuple[str, Any]:
    """A global of `namespace`; an attribute of it where it is a module of the user's. With its name up to there."""
    name, *attributes = dotted.split(".")
    value = namespace[name]
    for attribute in attributes:
        if not isinstance(value, ModuleType) or is_installed(value.__name__) or not hasattr(value, attribute):
            break
        name, value = f"{name}.{attribute}", getattr(value, attribute)
    return name, value


def own_import(name: str, package: str | None) -> tuple[str, str | None] | None:
    """Full name and file of a module of the user's that code imports (".models" with its dots).

    None for installed modules and for those that are not there. The file is None for a package, of which the name does
    not say which part is used.
    """
    try:
        full = importlib.util.resolve_name(name, package)
        top = importlib.util.find_spec(full.partition(".")[0])
        if top is None:
            return None
        place = top.origin or next(iter(top.submodule_search_locations or ()), "")
        if place in ("built-in", "frozen") or is_installed_file(place):
            return None
        spec = importlib.util.find_spec(full)
    except Exception:  # importing it will raise as well, and say why
        return None
    return None if spec is None else (full, None if spec.submodule_search_locations else spec.origin)
