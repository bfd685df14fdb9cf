"""Signals: they must not cut short the storing of trials, nor be lost; and a deadline acts as one."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from memfluence.errors import DeadlineReached

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
