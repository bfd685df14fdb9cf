"""Buffering between trials that come one by one and segments that should not be too many."""

import time
from collections.abc import Callable
from contextlib import suppress

from memfluence.errors import UnreachableError
from memfluence.records import Outcome
from memfluence.store.locations import Location
from memfluence.store.store import TrialStore

__all__ = ["SegmentWriter"]

_SHORTEST, _LONGEST = 2.0, 60.0  # seconds between segments
_SHARE_AT_RISK = 0.02  # of the time worked so far, that a kill -9 may cost
_MOST_BYTES = 64 * 2**20


class SegmentWriter:
    """Collects outcomes and publishes them as a segment every few seconds.

    A process killed outright loses what was trained since the last segment: 2 seconds at first, later 2% of the time
    worked so far, never more than a minute. Anything gentler than SIGKILL goes through `close` and loses nothing.
    While the storage of a remote run does not answer, segments are kept on this machine; `note` is told.
    """

    def __init__(
        self,
        store: TrialStore,
        on_segment: Callable[[Location, tuple[int, ...]], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._store = store
        self._on_segment = on_segment
        self._note = note or (lambda message: None)
        self._waiting: list[Outcome] = []
        self._bytes = 0
        self._has_kept = False
        self._started = self._last = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self._waiting.append(outcome)
        self._bytes += len(outcome.mask) // 4 + len(outcome.test_correct) // 8
        self._bytes += sum(values.nbytes for values in outcome.extras.values())
        now = time.monotonic()
        interval = min(_LONGEST, max(_SHORTEST, _SHARE_AT_RISK * (now - self._started)))
        if now - self._last >= interval or self._bytes >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Publish what is waiting, or keep it here. If that fails, it stays and can be tried again."""
        if self._waiting:
            path = self._write()
            if self._on_segment:
                self._on_segment(path, tuple(outcome.trial for outcome in self._waiting))
            self._waiting, self._bytes = [], 0
        self._last = time.monotonic()

    def close(self) -> None:
        """Publish all that is waiting or kept; an error says where it is if the storage does not answer."""
        self.flush()
        if self._has_kept:
            self._store.send_kept()

    def _write(self) -> Location:
        try:
            # Training goes on while the storage does not answer: then one attempt is enough.
            path = self._store.write(self._waiting, patience=0.0 if self._has_kept else None)
        except UnreachableError as error:
            kept = self._store.keep(self._waiting)
            if not self._has_kept:
                self._note(f"{error} Meanwhile trials are kept in {kept.parent} and sent later.")
            self._has_kept = True
            return kept
        if self._has_kept:
            with suppress(UnreachableError):  # gone again: there is a next time
                self._store.send_kept()
                self._has_kept = False
                self._note("The storage answers again, and what was kept here is sent.")
        return path
