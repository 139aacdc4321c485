"""The queue of captures and the one thread that writes them: full or late, captures are dropped."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from evalcore.capture.calls import WRITTEN, CaptureCall

QUEUE_LIMIT: Final = 1_000
EXIT_WAIT_S: Final = 5.0
# The thread works for a fifth of the time at the most: the caller needs the interpreter's lock.
_REST_FACTOR: Final = 4.0
_FORK_WAIT_S: Final = 2.0
_TICK_S: Final = 0.1
_DRAINED_AT_ONCE: Final = 200


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
        self._queue: SimpleQueue[CaptureCall | threading.Event] = SimpleQueue()
        # Reentrant: a signal's handler or a finalizer may capture while its thread counts.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        # What the thread has taken out of the queue, and what of it is written or dropped.
        self._drained = self._settled = 0
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        # Held while the thread imports, or works with locks that a forked child would find taken.
        self._working = threading.Lock()
        self._holds_work = False

    def add(self, call: CaptureCall) -> None:
        """Take a capture; the caller asks `is_full` before."""
        self._queue.put(call)
        if self._thread is None:
            self._start()

    def is_full(self) -> bool:
        """Whether no further capture is taken now."""
        return self._queue.qsize() >= QUEUE_LIMIT

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
            waiting = self._queue.qsize() + self._drained - self._settled
        written = dropped.pop(WRITTEN, 0)
        return CaptureCounts(waiting, written, dropped)

    def flush(self, timeout_s: float) -> bool:
        """Write what waits; return whether that was done within the time."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        self._hurry.set()
        return done.wait(timeout_s)

    def close(self) -> None:
        """Write what waits within `EXIT_WAIT_S`; the rest is dropped."""
        self.flush(EXIT_WAIT_S)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._register()
            thread = threading.Thread(target=self._run, name="evalcore-capture", daemon=True)
            self._thread = thread
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: the process ends, or has too many
            self._thread = None
            self._discard("exit")

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
        self._holds_work = self._working.acquire(timeout=_FORK_WAIT_S)

    def _resume_work(self) -> None:
        if self._holds_work:
            self._holds_work = False
            self._working.release()

    def _discard(self, reason: str) -> None:
        while True:
            try:
                entry = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(entry, CaptureCall):
                self.refuse(reason)

    def _run(self) -> None:
        with self._working:
            from evalcore.capture.batches import CaptureBatches

            batches = CaptureBatches(self.count, self._working)
        while True:
            try:
                entry = self._queue.get(timeout=batches.next_write_s())
            except Empty:
                batches.write_due()
                continue
            # Captures are taken in groups, and not one by one at every call of `add`.
            self._hurry.wait(_TICK_S)
            entries = [entry, *self._next_group()]
            self._drained += sum(isinstance(each, CaptureCall) for each in entries)
            events = [each for each in entries if isinstance(each, threading.Event)]
            for call in entries:
                if isinstance(call, CaptureCall):
                    started = time.thread_time()
                    with self._working:
                        batches.take(call)
                    # A full batch takes nothing more.
                    batches.write_due()
                    self._hurry.wait(_REST_FACTOR * (time.thread_time() - started))
            if events:
                batches.write_all()
                self._hurry.clear()
            for event in events:
                event.set()
            batches.write_due()

    def _next_group(self) -> list[CaptureCall | threading.Event]:
        entries: list[CaptureCall | threading.Event] = []
        limit = QUEUE_LIMIT * 2 if self._hurry.is_set() else _DRAINED_AT_ONCE
        while len(entries) < limit:
            try:
                entries.append(self._queue.get_nowait())
            except Empty:
                break
        return entries


PROCESS_WRITER: Final = CaptureWriter()
"""The writer of this process."""


def capture_counts() -> CaptureCounts:
    """Return what became of this process's captures."""
    return PROCESS_WRITER.counts()


def flush_captures(timeout_s: float = 10.0) -> bool:
    """Write what waits; return whether that was done within `timeout_s` seconds."""
    return PROCESS_WRITER.flush(timeout_s)
