"""What the calls of a process wait for at this moment, readable from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

# What each label stands for: how many calls wait, and how long (seconds) the longest has waited.
Waiting = Mapping[str, tuple[int, float]]


class Waits:
    """The waits of calls, by what they wait for: of this process, and of those that tell theirs.

    `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = count()
        self._begun: dict[int, tuple[str, float]] = {}
        self._elsewhere: dict[int, Waiting] = {}
        self._lock = threading.Lock()

    def tell(self, process: int, waiting: Waiting) -> None:
        """Take what the calls of another process wait for, until it says something else."""
        with self._lock:
            self._elsewhere[process] = waiting

    @contextmanager
    def entered(self, label: str) -> Iterator[None]:
        """Count one call as waiting for `label` as long as the context."""
        with self._lock:
            number = next(self._numbers)
            self._begun[number] = (label, self._clock())
        try:
            yield
        finally:
            with self._lock:
                del self._begun[number]

    def standing(self) -> Waiting:
        """Return what is waited for now, the longest wait first."""
        with self._lock:
            begun, now = list(self._begun.values()), self._clock()
            elsewhere = list(self._elsewhere.values())
        waits: dict[str, tuple[int, float]] = {}
        for label, since in begun:  # the oldest first
            calls, longest_s = waits.get(label, (0, now - since))
            waits[label] = (calls + 1, longest_s)
        for waiting in elsewhere:
            for label, (more, since_s) in waiting.items():
                calls, longest_s = waits.get(label, (0, 0.0))
                waits[label] = (calls + more, max(longest_s, since_s))
        return waits


def waiting_text(waits: Waiting) -> str:
    """Return waits as a person reads them; "" if none has lasted for a second."""
    parts = [
        f"{label}, {calls} {'call' if calls == 1 else 'calls'}, {longest_s:.0f} s"
        for label, (calls, longest_s) in waits.items()
        if longest_s >= 1
    ]
    return f"waiting: {'; '.join(parts)}" if parts else ""
