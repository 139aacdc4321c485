"""The word of a provider to its callers: come back later (`Retry-After`), or not at all.

It holds for every call to that provider, from targets, judges, blocks and embeddings.
Safe in several threads, each with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from evalcore.execution.limits.rates import Clock, ConcurrencyGate
from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Request

# So often the first of those that wait looks whether an answer has let it through.
_LOOK_S = 0.01
# So many items in a row that a provider refused, without an answer in between, end the run.
REFUSED_ITEMS = 3
_FORBIDDEN = 403


def provider_of(request: Request) -> tuple[str, str | None]:
    """Return what names a provider: its host (or its name in any-llm) and the key it is asked with.

    Two targets with one host and one key share the provider's limits and its credit.
    """
    endpoint = request.endpoint
    host = host_of(endpoint)
    if not host:
        host = f"{endpoint.protocol}:{request.model.partition(':')[0]}"
    return host, endpoint.api_key


def host_of(endpoint: Endpoint) -> str:
    """Return scheme, host and port: what lies behind them may differ from call to call."""
    return "/".join(endpoint.base_url.split("/", 3)[:3])


class ProviderGate:
    """Lets the calls to one provider through, and none as long as it asked to wait.

    After a wait it lets through as many calls as were answered between the two waits before, and
    then twice as many as long as they are answered: a provider that counts calls in a window
    refuses one or two in each.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._period = 0
        # Calls that were answered in the period before; None: nothing was ever refused.
        self._answered_before: int | None = None
        self._sent = self._ended = 0
        self._turn = ConcurrencyGate(1)
        self._lock = threading.Lock()
        self.has_answered = False
        self.refused_items = 0

    @property
    def held_s(self) -> float:
        """How long (seconds) the provider wants no call."""
        return max(0.0, self._until - self._clock())

    @asynccontextmanager
    async def entered(self, longest_s: float) -> AsyncIterator[None]:
        """Enter as soon as a call may be made, in order; its end says when the next ones may be.

        What the provider asks for beyond `longest_s` is not waited for.
        """
        period = await self._period_of_entry()
        asked_s = 0.0
        try:
            yield
        except ProviderError as error:
            asked_s = (error.retry_after_s or 0.0) if error.retryable else 0.0
            raise
        finally:
            if 0 < asked_s <= longest_s:
                self._hold(asked_s, period)
            else:
                self._leave(period)

    async def _period_of_entry(self) -> int:
        period = self._try_enter()
        if period is not None:
            return period
        await self._turn.enter()
        try:
            while (period := self._try_enter(is_first=True)) is None:
                await asyncio.sleep(max(_LOOK_S, self.held_s))
            return period
        finally:
            self._turn.leave()

    def _try_enter(self, *, is_first: bool = False) -> int | None:
        with self._lock:
            answered = self._answered_before
            if self._until > self._clock() or (not is_first and self._turn.inside):
                return None
            if answered is not None:
                beyond = 0 if self._ended < answered else 2 * (self._ended - answered) + 1
                if self._sent >= answered + beyond:
                    return None
            self._sent += 1
            return self._period

    def _hold(self, seconds: float, period: int) -> None:
        with self._lock:
            self._until = max(self._until, self._clock() + seconds)
            if period == self._period:
                self._period += 1
                self._answered_before, self._sent, self._ended = self._ended, 0, 0

    def _leave(self, period: int) -> None:
        with self._lock:
            if period == self._period:
                self._ended += 1
            elif period == self._period - 1 and self._answered_before is not None:
                self._answered_before += 1

    def note_answer(self) -> None:
        """Note that the provider answered a call: it refuses single ones at most."""
        self.has_answered = True
        self.refused_items = 0

    def refuses_all(self, error: ProviderError, protocol: str) -> bool:
        """Whether the provider may refuse every call for the reason of this one: key or credit.

        One that has answered may forbid a single question, and to an `http` target a 401 may be
        the answer that a case asks for.
        """
        if error.kind not in (ErrorKind.AUTHENTICATION, ErrorKind.CREDIT):
            return False
        return not self.has_answered or (protocol != "http" and error.status != _FORBIDDEN)


class Refusal(NamedTuple):
    """A call that a provider refused as it may refuse every other."""

    gate: ProviderGate
    error: ProviderError


class ProviderGates:
    """The gates of all providers that a process asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gates: dict[tuple[str, str | None], ProviderGate] = {}
        # What ends the run: the words of a provider that refuses every call.
        self.ended_by: ProviderError | None = None
        # Whether an item was left out for it.
        self.left_out = False

    def find(self, request: Request) -> ProviderGate:
        """Return the gate of the provider that is asked."""
        name = provider_of(request)
        gate = self._gates.get(name)
        return gate or self._gates.setdefault(name, ProviderGate(self._clock))

    def note_refused_item(self, gate: ProviderGate, error: ProviderError) -> None:
        """Note that an item ended with a refusal; after three in a row the run ends."""
        gate.refused_items += 1
        if gate.refused_items >= REFUSED_ITEMS and self.ended_by is None:
            self.ended_by = error

    @property
    def held_s(self) -> float:
        """How long (seconds) a provider wants no call: no new item begins before."""
        if not self._gates:
            return 0.0
        return max(gate.held_s for gate in tuple(self._gates.values()))
