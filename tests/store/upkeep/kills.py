"""Ending a piece of work at every moment at which something changes on the disk."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CHANGES = ("replace", "rename", "link", "unlink")


class Killed(BaseException):
    """What a kill -9 is to the code: no handler changes anything any more."""


class Clock:
    """Counts changes of names on the disk, and kills just before or just after one of them."""

    def __init__(self, moment: int) -> None:
        self._last, self._before = moment // 2 + 1, moment % 2 == 0
        self._changes = 0
        self.is_over = False

    def counting(self, real: Callable[..., object]) -> Callable[..., object]:
        def change(*arguments: object, **options: object) -> object:
            self._changes += 1
            is_last = self._changes == self._last
            if self.is_over or (is_last and self._before):
                self.is_over = True
                raise Killed
            try:
                return real(*arguments, **options)
            finally:
                if is_last:
                    self.is_over = True
                    raise Killed

        return change


def killed_everywhere(
    work: Callable[[], object], patch: pytest.MonkeyPatch, prepare: Callable[[], Path]
) -> Iterator[Path]:
    """Do `work` anew after each `prepare`, killed before its first change of a name on the disk, after it, and so on.

    Gives the directory after each end; the last time the work came to its own end.
    """
    for moment in range(1000):
        directory, clock = prepare(), Clock(moment)
        with patch.context() as patched:
            for name in CHANGES:
                patched.setattr(os, name, clock.counting(getattr(os, name)))
            with suppress(Killed):
                work()
        yield directory
        if not clock.is_over:
            return
    raise AssertionError("it never came to its end")
