"""How many items may wait on calls at once: the number that the providers and this process bear.

Safe in several threads: the pools of one run in one process share a window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

FIRST = 16
MOST = 1_000
# Of a smaller number of answers a share says little.
_LEAST_ROUND = 20
_FALL = 0.7
_FALL_EVERY_S = 1.0
# So many refusals are more than retries can make good: fewer calls at once are refused less. A
# provider that refuses now and then at any concurrency must not stop the run.
_REFUSED_TOO_MUCH = 0.5
_REFUSED_HARDLY = 0.05
_LATENCY_HOLDS = 1.5
_LATENCY_BROKEN = 2.0


class ConcurrencyShare(NamedTuple):
    """One of so many equal parts of a window."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Return how many of `limit` belong to this part, at least one."""
        return max(1, limit // self.of + (self.number < limit % self.of))


WHOLE = ConcurrencyShare()


class AdaptiveConcurrency:
    """Starts at `concurrency` and only falls; without one starts at 16, rises and falls.

    It rises, doubling, later by an eighth, as long as all slots are used and calls take no longer
    than before. It falls when providers refuse calls (429), at most once a second and once in a
    round trip. It is never above what `most` gives of the number that is wanted.
    """

    def __init__(
        self, concurrency: int | None = None, most: Callable[[int], int] = lambda number: number
    ) -> None:
        self.limit = most(concurrency or FIRST)
        self._most = most
        self._rises = concurrency is None
        self._least = 1 if concurrency is None else max(1, self.limit // 16)
        self._doubles = True
        self._best_s: float | None = None
        self._changed_at = 0.0
        self._used = False
        self._answered = self._refused = 0
        self._latencies: list[float] = []
        self._lock = threading.Lock()

    def note_full(self) -> None:
        """Note that every slot was taken while there was more to do."""
        self._used = True

    def note(self, began: float, ended: float, *, refused: bool) -> None:
        """Note how long a call took (seconds of one monotonic clock), or that it was refused."""
        with self._lock:
            if began < self._changed_at:  # it speaks of another number of calls at once
                return
            self._answered += 1
            if refused:
                self._refused += 1
            else:
                self._latencies.append(ended - began)
            if self._answered >= max(_LEAST_ROUND, self.limit):
                self._end_round(ended)

    def _end_round(self, now: float) -> None:
        share = self._refused / self._answered
        latency_s = _middle(self._latencies) if self._latencies else None
        if share >= _REFUSED_TOO_MUCH:
            if now - self._changed_at < _FALL_EVERY_S:
                return
            self._doubles = False
            self._change(max(self._least, int(self.limit * _FALL)), now)
        elif self._rises and share <= _REFUSED_HARDLY and latency_s is not None:
            self._weigh(latency_s, now)
        elif share > _REFUSED_HARDLY:
            self._doubles = False
        self._used = False
        self._answered = self._refused = 0
        self._latencies.clear()

    def _weigh(self, latency_s: float, now: float) -> None:
        """Rise or fall by how long calls take."""
        self._best_s = latency_s if self._best_s is None else min(self._best_s, latency_s)
        if latency_s <= _LATENCY_HOLDS * self._best_s:
            if self._used:
                more = self.limit if self._doubles else max(1, self.limit // 8)
                self._change(self._most(min(MOST, self.limit + more)), now)
            return
        self._doubles = False
        if latency_s > _LATENCY_BROKEN * self._best_s:
            # Refusals or the bound may have made it less than 16.
            self._change(min(self.limit, max(FIRST, int(self.limit * _FALL))), now)

    def _change(self, limit: int, now: float) -> None:
        self.limit = limit
        self._changed_at = now


def _middle(numbers: list[float]) -> float:
    # `statistics` takes longer to import than a round of calls.
    return sorted(numbers)[len(numbers) // 2]
