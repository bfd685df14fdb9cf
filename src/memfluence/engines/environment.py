"""The environment of processes that train: one thread, and a safe path.

One thread per worker: results have the same bits wherever they are made, and workers do not fight for cores.

A safe path: processes that engines start do not import whatever lies in the current directory. Python puts the current
directory first on the path of `python -c` and `python -m`, by which multiprocessing and joblib start their workers, so
a folder of downloads with a `pickle.py` in it would run that. PYTHONSAFEPATH stops it. A worker then gets the path of
the process that started it, so what a script or PYTHONPATH offers can be imported as ever, and a learner that the user
names adds its own folder where it is loaded.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SAFE_PATH = {"PYTHONSAFEPATH": "memfluence"}  # any text counts; this one says who has set it


def one_thread_from_the_start() -> None:
    """For a process that is to train, before torch is loaded, so that results have the same bits on every engine."""
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold the numerical libraries of this process to one thread for the while."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")  # if it is not loaded, the learners that load it set it themselves
    before = torch.get_num_threads() if torch is not None else 1
    with threadpool_limits(limits=1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside have these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def single_threaded_children() -> AbstractContextManager[None]:
    """Processes started inside see one thread from their first import on."""
    return _set(dict.fromkeys(THREAD_VARIABLES, "1"))


def safe_children() -> AbstractContextManager[None]:
    """Processes started inside have a safe path."""
    return _set({name: os.environ.get(name) or value for name, value in SAFE_PATH.items()})


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
