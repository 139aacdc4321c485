"""How long a value that others change has stayed the same, by this process's own clock.

Clocks of several machines differ; what one process sees by its monotonic clock does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Sighting(Generic[T]):
    """The value that was seen last, and when it was seen first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[T, float] | None = None

    def unchanged_s(self, value: T) -> float:
        """Return for how many seconds the value has been seen without another between; 0.0 for a
        value that differs from the one seen last.
        """
        now_s = self._clock()
        if self._seen is None or self._seen[0] != value:
            self._seen = value, now_s
        return now_s - self._seen[1]
