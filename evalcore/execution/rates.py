"""How often each provider may be asked: requests and tokens per minute, calls at once.

Safe in several threads, each with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from evalcore.execution.budget import ThreadWaiter
from evalcore.model.exchange import Endpoint, Reply
from evalcore.model.suite import ProviderLimits

_MINUTE_S = 60.0
# A provider that was called a moment ago will be called again.
_IDLE_S = 3.0
# While a process has no share it looks so often for one.
_HELD_S = 0.05

Clock = Callable[[], float]


class ProviderShare(NamedTuple):
    """One of `processes` equal parts; what cannot be divided goes to those of the lowest `rank`."""

    processes: int = 1
    rank: int = 0

    def of_calls(self, most: int) -> int:
        """Return how many of `most` calls at once are this part's."""
        return most // self.processes + (self.rank < most % self.processes)


WHOLE = ProviderShare()


class SharedRates(Protocol):
    """Rate limits that all workers share, kept somewhere else; safe in several threads."""

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out."""


class Rate:
    """So many units a minute, evenly: no minute has more, also after one that used less.

    A call that takes more than is free makes those after it wait.
    """

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self._whole_s = self._interval_s = _MINUTE_S / per_minute
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def divide(self, processes: int, delay_s: float = 0.0) -> None:
        """Be one of so many equal parts of the rate; the next unit waits for `delay_s` at least."""
        with self._lock:
            self._interval_s = self._whole_s * processes
            if delay_s:
                self._next = max(self._next, self._clock() + delay_s)

    @property
    def interval_s(self) -> float:
        """How long (seconds) a unit takes in this part of the rate."""
        return self._interval_s

    @property
    def wait_s(self) -> float:
        """How long to wait (seconds) before the next unit may be taken and used at once."""
        return max(0.0, self._next - self._clock())

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


class ConcurrencyGate:
    """Lets so many through at once, in the order in which they came."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside = 0
        self._waiting: deque[ThreadWaiter[bool]] = deque()
        self._lock = threading.Lock()

    @property
    def is_awaited(self) -> bool:
        """Whether a call waits for room."""
        return bool(self._waiting)

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

    A call is `in_use`, enters `gate`, and goes out when it has `passed`.
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
        self.gate = None if self._most is None else ConcurrencyGate(self._most)
        self.turn = ConcurrencyGate(1)
        self.ask: Callable[[], None] = _ask_no_process
        # When (by the clock) the share ends unless it is confirmed.
        self.expires_at = float("inf")
        self._share: ProviderShare | None = WHOLE
        self._users = 0
        self._used_at = -_IDLE_S
        self._lock = threading.Lock()

    @property
    def is_used(self) -> bool:
        """Whether calls are in flight, wait, or ended a moment ago."""
        return self._users > 0 or self._clock() - self._used_at < _IDLE_S

    @property
    def is_starved(self) -> bool:
        """Whether calls wait and this process's share lets none of them through."""
        gate = self.gate
        awaits = gate is not None and gate.is_awaited and gate.inside == 0
        return awaits and self._share is not None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Note that a call is about to be made, until its end."""
        with self._lock:
            self._users += 1
        if self._share is None:
            self.ask()
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = self._clock()

    async def passed(self, tokens: int) -> None:
        """Return when a call of about so many tokens may go out; calls pass in their order."""
        if not self.turn.try_enter():
            await self.turn.enter()
        try:
            while (wait_s := self.wait_s) > 0:
                await asyncio.sleep(wait_s)
            if self.requests is not None:
                self.requests.take()
            if self.tokens is not None:
                self.tokens.take(tokens)
        finally:
            self.turn.leave()

    def correct(self, guessed: int, reply: Reply) -> None:
        """Note how many tokens a call used that was guessed to use so many."""
        tokens = reply.usage.total_tokens
        if self.tokens is not None and tokens is not None:
            self.tokens.correct(tokens - guessed)

    @property
    def is_held(self) -> bool:
        """Whether this process has no share yet."""
        return self._share is None

    def divide(self, share: ProviderShare | None) -> None:
        """Take this share of the limits; None: let nothing through."""
        before, self._share = self._share, share
        if share is not None:
            for rate in (self.requests, self.tokens):
                if rate is not None:
                    rate.divide(share.processes)
                    if before is None and share.rank:  # who begin together do not call together
                        delay_s = rate.interval_s * share.rank / share.processes
                        rate.divide(share.processes, delay_s)
        if self.gate is not None:
            self.gate.resize(self._calls(share))

    def lessen(self, share: ProviderShare | None) -> None:
        """Let no more through than this share allows, nor more than until now."""
        if self._share is None or share is None:
            self.divide(None)
            return
        processes = max(share.processes, self._share.processes)
        for rate in (self.requests, self.tokens):
            if rate is not None:
                rate.divide(processes)
        if self.gate is not None:
            self.gate.resize(min(self._calls(share), self.gate.most))
        self._share = self._share._replace(processes=processes)

    def _calls(self, share: ProviderShare | None) -> int:
        return 0 if share is None else share.of_calls(self._most or 0)

    def fits(self, share: ProviderShare | None) -> bool:
        """Whether no more calls are in flight than a share allows."""
        return self.gate is None or self.gate.inside <= self._calls(share)

    @property
    def wait_s(self) -> float:
        """How long to wait (seconds) before asking again whether a call may go out; 0: it may."""
        if self._share is None or self._clock() > self.expires_at:
            return _HELD_S
        return max(0.0 if rate is None else rate.wait_s for rate in (self.requests, self.tokens))


def _ask_no_process() -> None:
    """Do nothing: the limits are one process's own."""


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
