"""One thread per worker: results have the same bits wherever they are made, and workers do not fight for cores."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


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
def single_threaded_children() -> Iterator[None]:
    """Processes started inside see one thread from their first import on."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
