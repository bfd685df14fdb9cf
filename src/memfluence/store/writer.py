"""`SegmentWriter`: collects finished trials, and publishes a segment of them every few seconds.

A thread of its own publishes them by the clock, because the next trial may take hours to finish. That thread only
writes files: the callbacks (`on_segment`, `note`) are called on the thread that trains, at its next call of the writer.
A fork waits until the segment in hand is written; otherwise the child process would inherit half of it, and locks that
nobody opens.
"""

import concurrent.futures.thread  # noqa: F401  registered while a fork waits below, half of its hooks would run
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from memfluence.errors import UnreachableError
from memfluence.records import Outcome
from memfluence.store.places import Location
from memfluence.store.store import TrialStore

_SHORTEST, _LONGEST = 2.0, 60.0  # seconds between segments
_SHARE_AT_RISK = 0.02  # of the time worked so far, that a kill -9 may cost
_MOST_BYTES = 64 * 2**20

_publishing = threading.RLock()  # held while a segment of this process is written
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_publishing.acquire, after_in_parent=_publishing.release, after_in_child=_publishing.release
    )


class SegmentWriter:
    """Collects outcomes and publishes them as a segment every few seconds.

    A process killed outright loses trials that were finished within the last 2 seconds, later within the last 2% of
    the time worked so far, never more than a minute, and the one in training. Anything gentler than SIGKILL goes
    through `close` and loses nothing. While the storage of a remote run does not answer, segments are kept on this
    machine; `note` is told. `versions` are those of the libraries that make the outcomes.

    All methods are for one thread, the one that trains.
    """

    def __init__(
        self,
        store: TrialStore,
        on_segment: Callable[[Location, tuple[int, ...]], None] | None = None,
        note: Callable[[str], None] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._versions = versions
        self._on_segment = on_segment or (lambda path, trials: None)
        self._note = note or (lambda message: None)
        self._waiting: list[Outcome] = []
        self._bytes_added = self._bytes_published = 0
        self._news: deque[Callable[[], None]] = deque()  # for the thread that trains
        self._has_kept = False
        self._has_failed = False  # by the clock: the thread that trains tries again, and raises what it meets
        self._stop_clock: threading.Event | None = None
        self._started = self._last = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self._bytes_added += _size(outcome)
        self._waiting.append(outcome)
        if self._stop_clock is None:
            self._stop_clock = threading.Event()
            threading.Thread(target=self._publish_by_the_clock, args=(self._stop_clock,), daemon=True).start()
        if self._bytes_added - self._bytes_published >= _MOST_BYTES:
            self.flush()
        self._tell()

    def flush_if_due(self) -> None:
        """Publish what is waiting if it has waited long enough; between trials, since some hold up all threads."""
        if self._has_failed or self._seconds_left() <= 0:
            self.flush()

    def flush(self) -> None:
        """Publish what is waiting, or keep it here. If that fails, it stays and can be tried again."""
        self._publish()
        self._tell()

    def close(self) -> None:
        """Publish all that is waiting or kept; an error says where it is if the storage does not answer."""
        if self._stop_clock is not None:
            self._stop_clock.set()
            self._stop_clock = None
        self.flush()
        if self._has_kept:
            self._store.send_kept()

    def _publish_by_the_clock(self, stop: threading.Event) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that trains
        while not stop.wait(max(0.0, self._seconds_left())):
            if self._seconds_left() <= 0:
                try:
                    self._publish(unless=stop)
                except Exception:
                    self._has_failed, self._last = True, time.monotonic()

    def _seconds_left(self) -> float:
        """Until the next segment is due."""
        now = time.monotonic()
        return self._last + min(_LONGEST, max(_SHORTEST, _SHARE_AT_RISK * (now - self._started))) - now

    def _publish(self, unless: threading.Event | None = None) -> None:
        with _publishing:
            if unless is not None and unless.is_set():  # closed while the clock's thread waited
                return
            if batch := self._waiting[:]:
                path, trials = self._write(batch), tuple(outcome.trial for outcome in batch)
                self._news.append(lambda: self._on_segment(path, trials))
                del self._waiting[: len(batch)]  # more may have come meanwhile
                self._bytes_published += sum(map(_size, batch))
            self._has_failed = False
            self._last = time.monotonic()

    def _tell(self) -> None:
        while self._news:
            self._news.popleft()()

    def _write(self, batch: list[Outcome]) -> Location:
        try:
            # Training goes on while the storage does not answer: then one attempt is enough.
            path = self._store.write(batch, versions=self._versions, patience=0.0 if self._has_kept else None)
        except UnreachableError as error:
            kept = self._store.keep(batch, self._versions)
            if not self._has_kept:
                said = f"{error} Meanwhile trials are kept in {kept.parent} and sent later."
                self._news.append(lambda: self._note(said))
            self._has_kept = True
            return kept
        if self._has_kept:
            with suppress(UnreachableError):  # gone again: there is a next time
                self._store.send_kept()
                self._has_kept = False
                self._news.append(lambda: self._note("The storage answers again, and what was kept here is sent."))
        return path


def _size(outcome: Outcome) -> int:
    """About how many bytes of memory it takes."""
    bits = len(outcome.mask) // 4 + len(outcome.test_correct) // 8
    return bits + sum(values.nbytes for values in outcome.extras.values())
