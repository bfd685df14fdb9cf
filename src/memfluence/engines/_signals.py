"""What signals may and may not do: they must not cut short the storing of trials, nor be lost."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["STOPPING", "blocked", "noticed_interrupt", "uninterrupted"]

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def blocked() -> Iterator[None]:
    """Hold signals back within the block; a process started in it holds them back until it is ready for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and its like within the block: an impatient second one must not lose what the first one saves."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread alone
        return
    before = {name: signal.signal(name, signal.SIG_IGN) for name in STOPPING}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler if handler is not None else signal.SIG_DFL)
