"""Python code by file or module name."""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from memfluence.errors import LearnerError
from memfluence.learners._code import FILE_MODULE_PREFIX

__all__ = ["is_file", "load"]


def is_file(where: str) -> bool:
    """Whether a learner's origin names a file rather than a module."""
    return where.endswith(".py") or "/" in where


def load(where: str) -> ModuleType:
    """The module of a file (`models/net.py`) or a module name (`models.net`), which may lie in the current directory.

    A file is loaded under a name made from its path and content, so that every process that loads it has the same
    module. Its directory can be imported from, as when it is run as a script. The current directory can be when it is
    where the module lies; an installed module does not open it to whatever else lies there.
    """
    return _load_file(Path(where)) if is_file(where) else _load_module(where)


def _load_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    try:
        source = path.read_bytes()
    except OSError as error:
        raise LearnerError(
            f"the learner's file {path} cannot be read ({error.strerror}); give a path from {Path.cwd()} or a full one."
        ) from error
    name = FILE_MODULE_PREFIX + hashlib.sha256(os.fsencode(path) + b"\0" + source).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # before it runs: classes defined in it look themselves up
    _make_importable(path.parent)
    try:
        # Compiled from the bytes that were hashed; the import system might take an older cached compilation.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise LearnerError(_what_failed(error, str(path))) from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0]) is None:
            _make_importable(Path.cwd())
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise LearnerError(_what_failed(error, name)) from error
        raise LearnerError(
            f"there is no module {name!r} here; install it, run from its directory, or name its file ({name}.py:...)."
        ) from error
    except (Exception, SystemExit) as error:
        raise LearnerError(_what_failed(error, name)) from error


def _make_importable(directory: Path) -> None:
    """At the end of the path, so that nothing installed is hidden."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _what_failed(error: BaseException, where: str) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename or where}, line {error.lineno}: {error.msg}; correct the file."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
    line = f", line {lines[-1]}" if lines else ""
    return f"{where}{line} raised {type(error).__name__}: {error} while it was loaded; run it with python to see more."
