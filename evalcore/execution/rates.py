"""How often each provider may be asked: requests and tokens per minute, calls at once.

Safe in several threads, each with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from evalcore.execution.adaptive import ConcurrencyShare
from evalcore.execution.budget import ThreadWaiter
from evalcore.model.exchange import Endpoint, Reply
from evalcore.model.suite import ProviderLimits

_MINUTE_S = 60.0
# So often a call that waits for a window of time looks for one.
_LOOK_S = 0.02
# Clocks that are read one after another differ by less.
_ROUNDING_S = 0.001

Clock = Callable[[], float]


class SharedRates(Protocol):
    """Rate limits that all workers share, kept somewhere else; safe in several threads."""

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out."""


class Rate:
    """So many units a minute, evenly: no minute has more, also after one that used less.

    A call that takes more than is free makes those after it wait.
    """

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self.interval_s = _MINUTE_S / per_minute
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    @property
    def wait_s(self) -> float:
        """How long to wait (seconds) before the next unit may be taken and used at once."""
        return max(0.0, self._next - self._clock())

    def take(self, amount: float = 1.0) -> float:
        """Take so many units; return how long to wait (seconds) before they may be used."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + amount * self.interval_s
            return start - now

    def owed_s(self, since: float) -> float:
        """Return for how many seconds after a moment what was taken uses up the rate."""
        return max(0.0, self._next - since)

    def move(self, moment: float) -> None:
        """Let the next unit wait for a moment."""
        with self._lock:
            self._next = moment

    def correct(self, difference: float) -> None:
        """Note that it was so many units more (or fewer) than what was taken."""
        with self._lock:
            self._next += difference * self.interval_s


class ConcurrencyGate:
    """Lets so many through at once, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside = 0
        self._waiting: deque[ThreadWaiter[bool]] = deque()
        self._lock = threading.Lock()

    @property
    def awaiting(self) -> int:
        """How many calls wait for room."""
        return len(self._waiting)

    def resize(self, most: int) -> None:
        """Let so many through at once from now on; those inside stay."""
        with self._lock:
            self.most = most
            self._admit()

    def try_enter(self) -> bool:
        """Enter if there is room; return whether there was."""
        with self._lock:
            if self.inside < self.most and not self._waiting:
                self.inside += 1
                return True
            return False

    async def enter(self) -> None:
        """Enter as soon as there is room."""
        with self._lock:
            if self.inside < self.most and not self._waiting:
                self.inside += 1
                return
            waiter: ThreadWaiter[bool] = ThreadWaiter()
            self._waiting.append(waiter)
        try:
            await waiter.wait()
        # However the wait ends (cancelled, or closed with its loop), its place must not be lost.
        except BaseException:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            if waiter.value:
                self.leave()
            raise

    def leave(self) -> None:
        """Make room for the next one."""
        with self._lock:
            self.inside -= 1
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self.inside < self.most:
            if self._waiting.popleft().set(True):
                self.inside += 1


class ProviderRates:
    """The limits of one provider, or this process's share of them.

    A call enters `gate`, and goes out when it has `passed`. Rates that are shared with other
    processes (execution.shared) let calls through in windows of time that `ask` asks for.
    """

    def __init__(self, limits: ProviderLimits, clock: Clock = time.monotonic) -> None:
        requests, tokens, self._most = (
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.max_concurrency,
        )
        self._clock = clock
        self.requests = None if requests is None else Rate(requests, clock)
        self.tokens = None if tokens is None else Rate(tokens, clock)
        self._paced = [rate for rate in (self.requests, self.tokens) if rate is not None]
        self.gate = None if self._most is None else ConcurrencyGate(self._most)
        self._turn = ConcurrencyGate(1)
        self._ask: Callable[[], None] = lambda: None
        # When (by the clock) the window ends.
        self._until = float("inf")
        # What the first waiting call needs.
        self._need_s: float | None = None

    @property
    def is_paced(self) -> bool:
        """Whether requests or tokens per minute are bounded."""
        return bool(self._paced)

    def divide(self, share: ConcurrencyShare) -> None:
        """Take a fixed part of the calls at once."""
        if self.gate is not None and self._most is not None:
            self.gate.resize(share.part(self._most))

    def share(self, ask: Callable[[], None]) -> None:
        """Let no call through outside of windows; `ask` is called when a call waits for one."""
        self._ask, self._until = ask, self._clock()

    def missing(self) -> tuple[float, int]:
        """Return how long (seconds) a window the first call needs, and how many wait; 0: none."""
        need_s = self._need_s
        if need_s is None or self._fits(need_s):
            return 0.0, 0
        return need_s, 1 + self._turn.awaiting

    def owed_s(self, since: float | None = None) -> float:
        """Return how long (seconds) calls use up the rates after a moment, or after the window."""
        after = self._until if since is None else since
        return max((rate.owed_s(after) for rate in self._paced), default=0.0)

    def open_window(self, begin: float | None, until: float) -> None:
        """Let calls through between two moments; the window may also go on (`begin` is None)."""
        if begin is not None:
            for rate in self._paced:
                rate.move(begin + rate.owed_s(self._until))
        self._until = until

    async def passed(self, tokens: int) -> None:
        """Return when a call of about so many tokens may go out; calls pass in their order."""
        if not self._paced:
            return
        if not self._turn.try_enter():
            await self._turn.enter()
        try:
            self._need_s = max(
                0.0 if self.requests is None else self.requests.interval_s,
                0.0 if self.tokens is None else self.tokens.interval_s * tokens,
            )
            while (wait_s := self._wait_s(self._need_s)) > 0:
                await asyncio.sleep(wait_s)
            if self.requests is not None:
                self.requests.take()
            if self.tokens is not None:
                self.tokens.take(tokens)
        finally:
            self._need_s = None
            self._turn.leave()

    def correct(self, guessed: int, reply: Reply) -> None:
        """Note how many tokens a call used that was guessed to use so many."""
        tokens = reply.usage.total_tokens
        if self.tokens is not None and tokens is not None:
            self.tokens.correct(tokens - guessed)

    def _free_s(self) -> float:
        """Return how long (seconds) the calls before keep the next one waiting."""
        return max((rate.wait_s for rate in self._paced), default=0.0)

    def _fits(self, need_s: float) -> bool:
        begin = self._clock() + self._free_s()
        return begin + need_s <= self._until + _ROUNDING_S

    def _wait_s(self, need_s: float) -> float:
        """Return how long to wait (seconds) before asking again whether a call may go out."""
        if self._fits(need_s):
            return self._free_s()
        self._ask()
        return _LOOK_S


class Rates:
    """The limits of all providers, by the provider's name, else by that of its protocol."""

    def __init__(
        self, sources: Iterable[Mapping[str, ProviderLimits]], clock: Clock = time.monotonic
    ) -> None:
        """Take limits from several places; for the same provider the smallest of each holds."""
        merged: dict[str, ProviderLimits] = {}
        for source in sources:
            for name, limits in source.items():
                smallest = merged.get(name)
                merged[name] = limits if smallest is None else _smallest(smallest, limits)
        self._providers = {name: ProviderRates(limits, clock) for name, limits in merged.items()}

    @property
    def by_provider(self) -> Mapping[str, ProviderRates]:
        """The limits, by the names under which they were given."""
        return self._providers

    @property
    def are_paced(self) -> bool:
        """Whether requests or tokens per minute of a provider are bounded."""
        return any(rates.is_paced for rates in self._providers.values())

    def divide(self, share: ConcurrencyShare) -> None:
        """Take a fixed part of the calls that each provider allows at once."""
        for rates in self._providers.values():
            rates.divide(share)

    def find(self, endpoint: Endpoint) -> ProviderRates | None:
        """Return the limits of an endpoint's provider; None if it has none."""
        if not self._providers:
            return None
        own = self._providers.get(endpoint.provider)
        return self._providers.get(endpoint.protocol) if own is None else own


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
