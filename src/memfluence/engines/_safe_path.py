"""A safe path: processes that engines start do not import whatever lies in the current directory.

Python puts the current directory first on the path of `python -c` and `python -m`, by which multiprocessing and joblib
start their workers, so a folder of downloads with a `pickle.py` in it would run that. PYTHONSAFEPATH stops it. A worker
then gets the path of the process that started it, so what a script or PYTHONPATH offers can be imported as ever, and a
learner that the user names adds its own folder where it is loaded.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

SAFE_PATH = {"PYTHONSAFEPATH": "memfluence"}  # any text counts; this one says who has set it


@contextmanager
def safe_children() -> Iterator[None]:
    """Processes started inside have a safe path."""
    before = {name: os.environ.get(name) for name in SAFE_PATH}
    os.environ.update({name: value for name, value in SAFE_PATH.items() if not before[name]})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def scripts_as_ever() -> None:
    """In a worker: a script that the learner starts finds the files beside it, which PYTHONSAFEPATH would hide.

    What multiprocessing starts from here is safe nevertheless: it hands on the interpreter's flag.
    """
    for name, value in SAFE_PATH.items():
        if os.environ.get(name) == value:
            del os.environ[name]


def safe_joblib() -> None:
    """Processes that joblib starts for an estimator (n_jobs=2) have a safe path; it hands on no flags."""
    from joblib import register_parallel_backend
    from joblib.parallel import LokyBackend

    class SafeLoky(LokyBackend):  # type: ignore[misc]
        def configure(self, *arguments: Any, **options: Any) -> Any:
            with safe_children():
                return super().configure(*arguments, **options)

        def submit(self, *arguments: Any, **options: Any) -> Any:
            with safe_children():  # the first one starts resource trackers beside the workers
                return super().submit(*arguments, **options)

        def _prepare_worker_env(self, n_jobs: int) -> dict[str, str]:
            return {**super()._prepare_worker_env(n_jobs), **SAFE_PATH}

    register_parallel_backend("loky", SafeLoky)


def outside_of_untrusted() -> Any:
    """A context in which the current directory is not one that this process itself would not import from.

    Ray puts a driver's current directory on the path of its workers.
    """
    here = Path.cwd()
    trusted = any(not entry or Path(entry).absolute() == here for entry in sys.path)
    return nullcontext() if trusted else chdir(sys.prefix)
