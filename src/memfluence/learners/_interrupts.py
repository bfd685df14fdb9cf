"""Interrupts that wait for the end of a step: between two of them a model's state is whole and can be kept."""

import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any

__all__ = ["HeldInterrupts"]

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeldInterrupts:
    """Within the block Ctrl-C and its like do nothing until `act` is called, or the block is left."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []
        self._before: dict[int, Callable[..., Any]] = {}

    @property
    def came(self) -> bool:
        return bool(self._waiting)

    def act(self) -> None:
        """Let each that came do what it would have done, which is to raise."""
        while self._waiting:
            self._waiting.pop(0)()

    def __enter__(self) -> "HeldInterrupts":
        if threading.current_thread() is threading.main_thread():  # signals are handled in the main thread alone
            for number in _HELD:
                handler = signal.getsignal(number)
                if callable(handler):  # neither ignored nor deadly
                    self._before[number] = handler
                    signal.signal(number, self._hold)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._hold:  # a handler may have put another one in its place
                signal.signal(number, handler)
        if error is None or isinstance(error, Exception):  # a second Ctrl-C adds nothing to the first
            self.act()

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(partial(self._before[number], number, frame))
