"""How often each provider may be asked: requests and tokens per minute, calls at once.

Safe in several threads, each with an event loop of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from evalcore.execution.handover import Waiter
from evalcore.model.exchange import Endpoint
from evalcore.model.suite import ProviderLimits

_MINUTE_S = 60.0

Clock = Callable[[], float]


class SharedRates(Protocol):
    """Rate limits that all workers share, kept somewhere else; safe in several threads."""

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out."""


class Rate:
    """So many units a minute, evenly: no minute has more, whatever was left unused before.

    The one who takes more than a moment gives lets those after it wait.
    """

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self._interval_s = _MINUTE_S / per_minute
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def take(self, amount: float = 1.0) -> float:
        """Take so many units; return how long to wait (seconds) before they may be used."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + amount * self._interval_s
            return start - now

    def correct(self, difference: float) -> None:
        """Note that it was so many units more (or fewer) than what was taken."""
        with self._lock:
            self._next += difference * self._interval_s


class Gate:
    """Lets so many through at once, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[Waiter[bool]] = deque()
        self._lock = threading.Lock()

    def enter_now(self) -> bool:
        """Enter if nobody has to be waited for; return whether that was so."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return True
            return False

    async def enter(self) -> None:
        """Enter as soon as there is room."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            waiter: Waiter[bool] = Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.wait()
        # However the wait ends (cancelled, or closed with its loop), its place must not be lost.
        except BaseException:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            if waiter.handed:
                self.leave()
            raise

    def leave(self) -> None:
        """Make room for the next one."""
        with self._lock:
            while self._waiting:
                if self._waiting.popleft().hand(True):
                    return
            self._free += 1


class ProviderRates:
    """The limits of one provider, and how many tokens its answers have had on average."""

    def __init__(self, limits: ProviderLimits, clock: Clock = time.monotonic) -> None:
        requests, tokens, most = (
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.max_concurrency,
        )
        self.requests = None if requests is None else Rate(requests, clock)
        self.tokens = None if tokens is None else Rate(tokens, clock)
        self.gate = None if most is None else Gate(most)

    def take(self, tokens: int) -> float:
        """Take a request of about so many tokens; return how long to wait (seconds) before it."""
        waits = [0.0]
        if self.requests is not None:
            waits.append(self.requests.take())
        if self.tokens is not None:
            waits.append(self.tokens.take(tokens))
        return max(waits)


class Rates:
    """The limits of all providers, by the provider's name, else by that of its protocol."""

    def __init__(
        self, sources: Iterable[Mapping[str, ProviderLimits]], clock: Clock = time.monotonic
    ) -> None:
        """Take limits from several places; for the same provider the smallest of each holds."""
        merged: dict[str, ProviderLimits] = {}
        for source in sources:
            for name, limits in source.items():
                known = merged.get(name)
                merged[name] = limits if known is None else _smallest(known, limits)
        self._providers = {name: ProviderRates(limits, clock) for name, limits in merged.items()}

    def find(self, endpoint: Endpoint) -> ProviderRates | None:
        """Return the limits of an endpoint's provider; None if it has none."""
        if not self._providers:
            return None
        found = self._providers.get(endpoint.provider)
        return self._providers.get(endpoint.protocol) if found is None else found


def _smallest(first: ProviderLimits, second: ProviderLimits) -> ProviderLimits:
    return ProviderLimits(
        _least(first.requests_per_minute, second.requests_per_minute),
        _least(first.tokens_per_minute, second.tokens_per_minute),
        _least(first.max_concurrency, second.max_concurrency),
    )


_Bound = TypeVar("_Bound", int, float)


def _least(first: _Bound | None, second: _Bound | None) -> _Bound | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
