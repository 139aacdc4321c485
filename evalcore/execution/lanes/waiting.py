"""How a lane without a shard waits for others: what it asks of the store, and how often."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from evalcore.execution.lanes.claims import Claims
from evalcore.storage.runs import StoredRun

# A lane waits an eighth longer than it has to at most, and notices an end within some seconds.
SHARE = 1 / 8
LONGEST_PAUSE_S = 3.0
_LONGEST_LEASES = 1 / 4
_JITTER = 0.25


class Waiting:
    """The wait of one lane. What there is to see costs a single request, or none.

    A lane watches one of the shards that others execute. When it has its result, when a claim has
    expired and when claims were abandoned, it is time to look at all of them (`Claims.look`).
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self, run: StoredRun, claims: Claims, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._claims, self._clock = run, claims, clock
        self._random = random.Random(claims.lane)  # noqa: S311  (no secret)
        self._since: float | None = None
        self._watched: int | None = None
        self._abandoned: Mapping[str, str] | None = None

    def end(self) -> None:
        """Note that the lane has a shard."""
        self._since = None

    def pause_s(self, first_s: float) -> float:
        """Return how long to wait now: `first_s`, in a remote store longer from look to look.

        Not longer than until a claim expires, unless this is less than `first_s`.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        if not self._run.store.is_remote:
            return first_s
        longest_s = max(first_s, min(LONGEST_PAUSE_S, self._claims.lease_s * _LONGEST_LEASES))
        pause_s = min(max(first_s, (now - self._since) * SHARE), longest_s)
        # Lanes that have begun to wait together do not ask together.
        pause_s *= self._random.uniform(1 - _JITTER, 1 + _JITTER)
        return min(pause_s, max(first_s, self._claims.expires_in_s()))

    def is_look_due(self, abandoned: Mapping[str, str]) -> bool:
        """Whether a look may show another state than the last one.

        `abandoned` are the claims that their lanes have left. Raises `StoreError`.
        """
        is_news = abandoned != self._abandoned
        self._abandoned = abandoned
        if is_news or self._claims.expires_in_s() <= 0:
            return True
        if self._watched not in self._claims.others:
            others = sorted(self._claims.others)
            self._watched = self._random.choice(others) if others else None
        return self._watched is None or self._run.has_result(self._watched)
