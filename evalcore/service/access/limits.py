"""Limits of rate: a token bucket for each caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

from evalcore.service.failure import ServiceError

_MOST_BUCKETS = 10_000


class RateLimiter:
    """Allows each key so many requests per second on average, and twice as many at once.

    `per_second` 0 allows any number.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, key: str) -> None:
        """Take one request; raise `ServiceError` 429 if there is none left."""
        if not self._per_second:
            return
        now, most = self._clock(), 2 * self._per_second
        left, since = self._buckets.get(key, (most, now))
        left = min(most, left + (now - since) * self._per_second)
        if left < 1:
            wait_s = ceil((1 - left) / self._per_second)
            message = f"too many requests; try again in {wait_s} s"
            raise ServiceError(429, message, {"Retry-After": str(wait_s)})
        if len(self._buckets) >= _MOST_BUCKETS and key not in self._buckets:
            self._buckets.clear()
        self._buckets[key] = (left - 1, now)
