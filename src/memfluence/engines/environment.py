"""The environment of processes that train: one thread, a safe path, and signals that cut nothing short.

One thread per worker: results have the same bits wherever they are made, and workers do not fight for cores.

A safe path: processes that engines start do not import whatever lies in the current directory. Python puts the current
directory first on the path of `python -c` and `python -m`, by which multiprocessing and joblib start their workers, so
a folder of downloads with a `pickle.py` in it would run that. PYTHONSAFEPATH stops it. A worker then gets the path of
the process that started it, so what a script or PYTHONPATH offers can be imported as ever, and a learner that the user
names adds its own folder where it is loaded.

Signals must not cut short the storing of trials, nor be lost; and a deadline acts as one.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from memfluence.errors import DeadlineReached

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SAFE_PATH = {"PYTHONSAFEPATH": "memfluence"}  # any text counts; this one says who has set it
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


# ---- signals


@contextmanager
def blocked() -> Iterator[None]:
    """Hold signals back within the block; a process started in it holds them back until it is ready for them.

    The mask is this thread's alone. A library's thread takes a signal in its place, which Python then handles here: so
    the handlers wait, too.
    """
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    on_main = threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    # What is ignored stays so, because a process started here would not inherit that from a handler.
    handlers = {name: signal.getsignal(name) for name in STOPPING if on_main and callable(signal.getsignal(name))}
    try:
        for name in handlers:
            signal.signal(name, hold)
        yield
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in dict.fromkeys(held):
            signal.raise_signal(number)


@contextmanager
def noticed_interrupt() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether a signal came, even if somebody swallowed the exception that it raised."""
    came = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: came
        return

    def noticing(handler: Callable[..., object]) -> Callable[..., object]:
        def notice(*arguments: object) -> object:
            nonlocal came
            came = True
            return handler(*arguments)

        return notice

    before = {name: signal.getsignal(name) for name in STOPPING}
    for name, handler in before.items():
        if callable(handler):
            signal.signal(name, noticing(handler))
    try:
        yield lambda: came
    finally:
        for name, handler in before.items():
            if callable(handler):
                signal.signal(name, handler)


@contextmanager
def uninterrupted() -> Iterator[Callable[[], int]]:
    """Hold up Ctrl-C and its like within the block: an impatient second one must not lose what the first one saves.

    Gives a function that counts those that came.
    """
    came = 0
    if threading.current_thread() is not threading.main_thread():
        yield lambda: came  # signals are handled in the main thread alone
        return

    def count(*_: object) -> None:
        nonlocal came
        came += 1

    before = {name: signal.signal(name, count) for name in STOPPING}
    for name in STOPPING:
        signal.siginterrupt(name, False)  # files are written on
    try:
        yield lambda: came
    finally:
        for name, handler in before.items():
            signal.signal(name, handler if handler is not None else signal.SIG_DFL)


def time_is_over() -> DeadlineReached:
    return DeadlineReached("The time for training is over; what is complete is stored, run the same command to go on.")


@contextmanager
def interrupted_at(deadline: float | None) -> Iterator[None]:
    """Interrupt the block at this time (of `time.monotonic`) as Ctrl-C would; it then ends with `DeadlineReached`.

    A block has to look at the clock itself if it is not on the main thread, where signals are handled, or runs code
    that takes the alarm for itself.
    """
    if deadline is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    is_reached = False

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal is_reached
        is_reached = True
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):  # not while trials are stored
            handler(signal.SIGINT, frame)

    def interrupt(*_: object) -> None:
        if is_reached:  # what ignored Ctrl-C, as under nohup, still does
            raise KeyboardInterrupt

    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGALRM)}
    if not callable(before[signal.SIGINT]):
        signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, deadline - time.monotonic()))  # 0 would be never
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for name, handler in before.items():
                signal.signal(name, handler if handler is not None else signal.SIG_DFL)
    except KeyboardInterrupt:
        if is_reached:
            raise time_is_over() from None
        raise
