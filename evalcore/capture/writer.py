"""The queue of captures and the one thread that writes them: full or late, captures are dropped."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from evalcore.capture.calls import WRITTEN, CaptureCall, Pace

if TYPE_CHECKING:
    from evalcore.capture.batches import CaptureBatches

QUEUE_LIMIT: Final = 1_000
"""Most calls that wait."""
QUEUE_BYTES: Final = 32_000_000
"""About how many bytes may wait."""
EXIT_WAIT_S: Final = 5.0
_FORK_WAIT_S: Final = 2.0
# To wake a thread costs the caller more than all else: the thread looks by itself, and sleeps when
# nothing has come for some time.
_TICK_S: Final = 0.1
_QUIET_TICKS: Final = 50


class CaptureCounts(NamedTuple):
    """What became of this process's captures.

    `waiting` are on their way, `written` in the store (a repeated input counts), `dropped` counts
    the others by reason: `queue full`, `store`, `too large`, `redaction`, `failed`, `exit`.
    """

    waiting: int
    written: int
    dropped: dict[str, int]


class CaptureWriter:
    """Takes captures from any thread and writes them in one of its own.

    `add` never waits and never raises. After a fork the child begins with an empty queue: what
    waits is the parent's.
    """

    def __init__(self) -> None:
        self._registered = False
        self._reset()

    def _reset(self) -> None:
        self._queue: deque[CaptureCall | threading.Event] = deque()
        # Callers add to it without a lock: it is exact again whenever the queue is empty.
        self._queued_bytes = 0
        # Reentrant: a signal's handler or a finalizer may capture while its thread counts.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        # What the thread has taken out of the queue, and what of it is written or dropped.
        self._drained = self._settled = 0
        self._thread: threading.Thread | None = None
        self._is_asleep = True
        self._wake = threading.Event()
        self._hurry = threading.Event()
        # Its lock is held while the thread imports, or works with locks that a forked child would
        # find taken.
        self._pace = Pace(self._hurry)
        self._holds_work = False

    def add(self, call: CaptureCall) -> None:
        """Take a capture; the caller asks `is_full` before."""
        self._queue.append(call)
        self._queued_bytes += call.size
        if self._is_asleep:
            self._rouse()

    def is_full(self) -> bool:
        """Whether no further capture is taken now."""
        return len(self._queue) >= QUEUE_LIMIT or self._queued_bytes >= QUEUE_BYTES

    def refuse(self, reason: str) -> None:
        """Count a capture that is not taken."""
        with self._lock:
            self._counts[reason] += 1

    def count(self, reason: str, number: int = 1) -> None:
        """Count captures that were taken and then dropped for this reason, or `WRITTEN`."""
        with self._lock:
            self._counts[reason] += number
            self._settled += number

    def counts(self) -> CaptureCounts:
        """Return what became of the captures so far."""
        with self._lock:
            dropped = dict(self._counts)
            waiting = len(self._queue) + self._drained - self._settled
        written = dropped.pop(WRITTEN, 0)
        return CaptureCounts(waiting, written, dropped)

    def flush(self, timeout_s: float) -> bool:
        """Write what waits; return whether that was done within the time."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._hurry.set()
        self._queue.append(done)
        self._wake.set()
        return done.wait(timeout_s)

    def close(self) -> None:
        """Write what waits within `EXIT_WAIT_S`; the rest is dropped."""
        self.flush(EXIT_WAIT_S)

    def _rouse(self) -> None:
        """Start or wake the thread."""
        self._is_asleep = False
        if self._thread is not None:
            self._wake.set()
            return
        with self._lock:
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        self._register()
        self._thread = threading.Thread(target=self._run, name="evalcore-capture", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be started: the process ends, or has too many
            self._thread = None
            self._discard("exit")
            self._is_asleep = True

    def _register(self) -> None:
        """Be told of forks and of the end of the process, once."""
        if not self._registered:
            self._registered = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(
                    before=self._pause_work,
                    after_in_parent=self._resume_work,
                    after_in_child=self._reset,
                )
            atexit.register(self.close)
        # A child of multiprocessing ends without the functions of `atexit`.
        if "multiprocessing.util" in sys.modules:
            from multiprocessing.util import Finalize

            Finalize(self, self.close, exitpriority=0)

    def _pause_work(self) -> None:
        self._holds_work = self._pace.lock.acquire(timeout=_FORK_WAIT_S)

    def _resume_work(self) -> None:
        if self._holds_work:
            self._holds_work = False
            self._pace.lock.release()

    def _discard(self, reason: str) -> None:
        while self._queue:
            if isinstance(self._queue.popleft(), CaptureCall):
                self.refuse(reason)
        self._queued_bytes = 0

    def _run(self) -> None:
        with self._pace:
            from evalcore.capture.batches import CaptureBatches

            batches = CaptureBatches(self.count, self._pace)
        quiet_ticks = 0
        while True:
            self._hurry.wait(_TICK_S)
            quiet_ticks = 0 if self._queue else quiet_ticks + 1
            self._empty_queue(batches)
            batches.write_due()
            if quiet_ticks > _QUIET_TICKS:
                self._sleep(batches.next_write_s())

    def _empty_queue(self, batches: CaptureBatches) -> None:
        """Take what is in the queue, until it is empty."""
        while self._queue:
            entry = self._queue.popleft()
            if isinstance(entry, threading.Event):
                batches.write_all()
                if not any(isinstance(each, threading.Event) for each in tuple(self._queue)):
                    self._hurry.clear()
                entry.set()
                continue
            self._queued_bytes -= entry.size
            self._drained += 1
            batches.take(entry)
            # A full batch takes nothing more.
            batches.write_due()
        self._hurry.clear()
        self._queued_bytes = 0

    def _sleep(self, longest_s: float) -> None:
        """Wait until something comes, or for this time."""
        self._wake.clear()
        self._is_asleep = True
        # What came before that does not wake the thread.
        if not self._queue:
            self._wake.wait(longest_s)
        self._is_asleep = False


PROCESS_WRITER: Final = CaptureWriter()
"""The writer of this process."""


def capture_counts() -> CaptureCounts:
    """Return what became of this process's captures."""
    return PROCESS_WRITER.counts()


def flush_captures(timeout_s: float = 10.0) -> bool:
    """Write what waits; return whether that was done within `timeout_s` seconds."""
    return PROCESS_WRITER.flush(timeout_s)
