"""How often each provider is asked, and how many items run at once, by one process of a run.

Requests and tokens per minute, calls at once, and a window that adapts to what providers bear. Of
what a provider allows, each process of a run has a fixed part. All of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

from evalcore.model.exchange import Endpoint, Reply
from evalcore.model.suite import ProviderLimits

_MINUTE_S = 60.0
Clock = Callable[[], float]


class SharedRates(Protocol):
    """Rate limits that all workers share, kept somewhere else; safe in several threads."""

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out."""


class ConcurrencyShare(NamedTuple):
    """One of so many equal parts of what a provider allows."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Return how many of `limit` belong to this part, at least one."""
        return max(1, limit // self.of + (self.number < limit % self.of))


WHOLE = ConcurrencyShare()


class Rate:
    """So many units a minute, evenly: no minute has more, also after one that used less.

    A call that takes more than is free makes those after it wait.
    """

    def __init__(self, per_minute: float, clock: Clock = time.monotonic) -> None:
        self._interval_s = _MINUTE_S / per_minute
        self._clock = clock
        self._next = 0.0

    @property
    def wait_s(self) -> float:
        """How long to wait (seconds) before the next unit may be taken."""
        return max(0.0, self._next - self._clock())

    def take(self, amount: float = 1.0) -> None:
        """Take so many units."""
        self._next = max(self._clock(), self._next) + amount * self._interval_s

    def correct(self, difference: float) -> None:
        """Note that it was so many units more (or fewer) than what was taken."""
        self._next += difference * self._interval_s


class ProviderRates:
    """What a provider allows this process. A call enters `gate`, and goes out when it `passed`."""

    def __init__(
        self, limits: ProviderLimits, share: ConcurrencyShare = WHOLE, clock: Clock = time.monotonic
    ) -> None:
        requests, tokens, most = (
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.max_concurrency,
        )
        self.gate = None if most is None else asyncio.Semaphore(share.part(most))
        self._requests = None if requests is None else Rate(requests / share.of, clock)
        self._tokens = None if tokens is None else Rate(tokens / share.of, clock)
        self._turn = asyncio.Lock()

    async def passed(self, tokens: int) -> None:
        """Return when a call of about so many tokens may go out; calls pass in their order."""
        rates = [rate for rate in (self._requests, self._tokens) if rate is not None]
        async with self._turn:
            while (wait_s := max((rate.wait_s for rate in rates), default=0.0)) > 0:
                await asyncio.sleep(wait_s)
            if self._requests is not None:
                self._requests.take()
            if self._tokens is not None:
                self._tokens.take(tokens)

    def correct(self, guessed: int, reply: Reply) -> None:
        """Note how many tokens a call used that was guessed to use so many."""
        tokens = reply.usage.total_tokens
        if self._tokens is not None and tokens is not None:
            self._tokens.correct(tokens - guessed)


class Rates:
    """The limits of all providers, by the provider's name, else by that of its protocol."""

    def __init__(
        self,
        sources: Iterable[Mapping[str, ProviderLimits]],
        share: ConcurrencyShare = WHOLE,
        clock: Clock = time.monotonic,
    ) -> None:
        """Take limits from several places; for the same provider the smallest of each holds."""
        merged: dict[str, ProviderLimits] = {}
        for source in sources:
            for name, limits in source.items():
                merged[name] = _smallest(merged.get(name, limits), limits)
        self.by_provider: Mapping[str, ProviderRates] = {
            name: ProviderRates(limits, share, clock) for name, limits in merged.items()
        }

    def find(self, endpoint: Endpoint) -> ProviderRates | None:
        """Return the limits of an endpoint's provider; None if it has none."""
        own = self.by_provider.get(endpoint.provider)
        return self.by_provider.get(endpoint.protocol) if own is None else own


def _smallest(*limits: ProviderLimits) -> ProviderLimits:
    def least(name: str) -> Any:
        bounds = (getattr(each, name) for each in limits)
        return min((bound for bound in bounds if bound is not None), default=None)

    return ProviderLimits(**{field.name: least(field.name) for field in fields(ProviderLimits)})


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


class AdaptiveConcurrency:
    """Starts at `concurrency` and only falls; without one starts at 16, rises and falls.

    It rises, doubling, later by an eighth, as long as all slots are used and calls take no longer
    than before. It falls when providers refuse calls (429), at most once a second and once in a
    round trip.
    """

    def __init__(self, concurrency: int | None = None) -> None:
        self.limit = concurrency or FIRST
        self._rises = concurrency is None
        self._least = 1 if concurrency is None else max(1, self.limit // 16)
        self._doubles = True
        self._best_s: float | None = None
        self._changed_at = 0.0
        self._used = False
        self._answered = self._refused = 0
        self._latencies: list[float] = []

    def note_full(self) -> None:
        """Note that every slot was taken while there was more to do."""
        self._used = True

    def note(self, began: float, ended: float, *, refused: bool) -> None:
        """Note how long a call took (seconds of one monotonic clock), or that it was refused."""
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
        # `statistics` takes longer to import than a round of calls.
        ordered = sorted(self._latencies)
        latency_s = ordered[len(ordered) // 2] if ordered else None
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
                self._change(min(MOST, self.limit + more), now)
            return
        self._doubles = False
        if latency_s > _LATENCY_BROKEN * self._best_s:
            # Refusals or the bound may have made it less than 16.
            self._change(min(self.limit, max(FIRST, int(self.limit * _FALL))), now)

    def _change(self, limit: int, now: float) -> None:
        self.limit = limit
        self._changed_at = now
