"""`Watch`: checkpoints, progress and interrupts of one long training.

It restores a checkpoint, saves new ones by the clock, and reports how far the training is. An interrupt waits until a
checkpoint is saved. After the last step the trained model can be saved until it has been evaluated.
"""

import io
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch

from memfluence import __version__
from memfluence.learners.nets.device import device_name
from memfluence.learners.protocol import Checkpoints
from memfluence.records import PartWay, digest

_SECONDS_BETWEEN_PAUSES = 0.5
_SECONDS_BETWEEN_REPORTS = 5.0
_LARGEST_SHARE = 0.02  # of the time, that writing checkpoints may take

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
        """Call the handlers of the signals that came; they raise."""
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


class Watch:
    """Watches one trial. Without checkpoints and without `report` it does nothing.

    Steps for a GPU are queued far ahead of it. So every half second the watch waits until the device has done what it
    was given: the clock then means something, and interrupts act soon.
    """

    def __init__(
        self,
        trial: int,
        checkpoints: Checkpoints | None = None,
        report: Callable[[PartWay], None] | None = None,
    ) -> None:
        self._trial, self._checkpoints, self._report = trial, checkpoints, report
        self._interrupts = HeldInterrupts()
        self._next = float("inf")  # the step after which to pause
        self._saved = 0  # the step of the newest checkpoint
        self._trained = False
        self.seconds_before = 0.0  # of training, before the checkpoint that it went on from

    @contextmanager
    def over(self, state: Sequence[torch.Tensor], steps: int, device: torch.device) -> Iterator[int]:
        """The block trains from the step that this yields, and calls `after` when the device was given a step.

        `state` holds all tensors that steps change: a checkpoint is copied into them, and made from them.
        """
        if self._report is None and self._checkpoints is None:
            yield 0
            return
        self._state, self._steps, self._device = state, steps, device
        self._made_with = {
            "memfluence": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,  # which draws the order and the crops
            "device": device_name(device),
            "state": digest([[list(tensor.shape), str(tensor.dtype)] for tensor in state]),
        }
        with self._interrupts:
            first = self._saved = self._restore()
            self._start = first / steps
            self._began = self._paused = self._reported = time.monotonic()
            self._due = self._began + (self._checkpoints.every if self._checkpoints else 0.0)
            self._between, self._next = 1, first + 1
            if first and self._report is not None:
                self._report(PartWay(self._trial, self._start, self._start))
            yield first
            self._trained = True
            if time.monotonic() >= self._due:
                self._save(steps)

    @contextmanager
    def until_evaluated(self) -> Iterator[None]:
        """The block trains (within `over`) and evaluates; an interrupt after the last step saves the trained model."""
        try:
            yield
        except BaseException as error:
            if self._trained and not isinstance(error, Exception):  # Ctrl-C, or the engine stops
                with HeldInterrupts():  # a second Ctrl-C must not lose what the first one saves
                    self._save(self._steps)
            raise

    def after(self, step: int) -> None:
        """So many steps have been given to the device."""
        if step >= self._next or self._interrupts.came:
            self._pause(step)

    def _pause(self, step: int) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.monotonic()
        try:
            self._interrupts.act()
            if self._report is not None and now - self._reported >= _SECONDS_BETWEEN_REPORTS:
                self._reported = now
                self._report(PartWay(self._trial, step / self._steps, self._start))
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, or the engine stops
                self._save(step)
            raise
        if self._checkpoints is not None and now >= self._due:
            self._save(step)
        elapsed = max(now - self._paused, 1e-6)
        self._between = max(1, min(2 * self._between, round(self._between * _SECONDS_BETWEEN_PAUSES / elapsed)))
        self._next, self._paused = step + self._between, time.monotonic()

    def _save(self, step: int) -> None:
        if self._checkpoints is None or step == self._saved:
            return
        began = time.monotonic()
        content = io.BytesIO()
        seconds = self.seconds_before + began - self._began
        tensors = [tensor.detach().cpu() for tensor in self._state]
        torch.save({"step": step, "seconds": seconds, "tensors": tensors}, content)
        self._checkpoints.save(self._trial, self._made_with, content.getvalue(), step / self._steps)
        self._saved = step
        now = time.monotonic()
        self._due = now + max(self._checkpoints.every, (now - began) / _LARGEST_SHARE)

    @torch.no_grad()
    def _restore(self) -> int:
        """Copy a checkpoint into the state, in place because captured steps know these tensors; gives its step."""
        content = self._checkpoints.load(self._trial, self._made_with) if self._checkpoints else None
        if content is None:
            return 0
        saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for tensor, value in zip(self._state, saved["tensors"], strict=True):
            tensor.copy_(value)
        self.seconds_before = float(saved["seconds"])
        return int(saved["step"])
