"""Rate limits of providers that all workers share: Prefect's global concurrency limits.

A limit is called `evalcore-NAME-requests` or `evalcore-NAME-tokens`, NAME being the provider's (the
name of the target, or what evalcore.toml calls it); its slots decay, `slot_decay_per_second` being
the rate. Where there is none, nothing is limited. A look at the server takes 15 ms, so slots are
taken in blocks and spent here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from httpx import HTTPError, HTTPStatusError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound

from evalcore.model.exchange import ErrorKind, ProviderError

BLOCK = 50
# A call uses hundreds of tokens.
_TOKEN_BLOCK = 5_000
_LOCKED = 423
_SHORTEST_WAIT_S = 0.05
_LONGEST_WAIT_S = 30.0


class PrefectRates:
    """Takes slots for calls (`execution.rates.SharedRates`); safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[str, _SlotBlock] = {}
        # One thread: those who wait for a limit must not keep results from being written.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rate-limits")

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out.

        Raises `ProviderError` (worth a retry) if the server does not answer.
        """
        await self._take(f"evalcore-{provider}-requests", 1, BLOCK)
        await self._take(f"evalcore-{provider}-tokens", tokens, _TOKEN_BLOCK)

    async def _take(self, name: str, amount: int, block: int) -> None:
        with self._lock:
            slots = self._blocks.setdefault(name, _SlotBlock(name, block))
        while not slots.spend(amount):
            # Which server it is stands in Prefect's context.
            ask = partial(copy_context().run, slots.fill, amount)
            loop = asyncio.get_running_loop()
            await asyncio.sleep(await loop.run_in_executor(self._thread, ask))


class _SlotBlock:
    """Slots of one limit that were taken and are not spent yet."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._lock = threading.Lock()
        self._left = 0
        self._limit: int | None = None
        self._unlimited = False
        self._not_before = 0.0
        self._decay = 0.0

    def spend(self, amount: int) -> bool:
        """Spend slots if there are so many; return whether that was so."""
        with self._lock:
            if self._unlimited:
                return True
            if self._left < amount:
                return False
            self._left -= amount
            return True

    def fill(self, amount: int) -> float:
        """Ask the server for slots, if there are not so many; return how long to wait (seconds).

        Blocks for as long as the server takes to answer; to be called in one thread.
        """
        wait_s = self._not_before - time.monotonic()
        if wait_s > 0:
            return wait_s
        with self._lock:
            if self._unlimited or self._left >= amount:
                return 0.0
            missing = amount - self._left
        try:
            with get_client(sync_client=True) as client:
                if self._limit is None and not self._find(client):
                    return 0.0
                slots = max(1, min(self._limit or 1, max(self._size, missing)))
                wait_s = _occupy(client, self._name, slots)
        except HTTPError as error:
            message = f"Prefect's server does not give rate limit '{self._name}': {error}"
            raise ProviderError(ErrorKind.RATE, message, status=503) from error
        if wait_s > 0:
            # The server adds up what it refused to everybody; so many slots are free before that.
            wait_s = max(_SHORTEST_WAIT_S, min(wait_s, slots / self._decay))
            self._not_before = time.monotonic() + wait_s
        else:
            with self._lock:
                self._left += slots
        return wait_s

    def _find(self, client: SyncPrefectClient) -> bool:
        """Look for the limit; return whether there is one that is active and decays."""
        try:
            limit = client.read_global_concurrency_limit_by_name(self._name)
        except ObjectNotFound:
            limit = None
        if limit is None or not limit.active or not limit.slot_decay_per_second:
            with self._lock:
                self._unlimited = True
            return False
        self._limit, self._decay = limit.limit, limit.slot_decay_per_second
        return True


def _occupy(client: SyncPrefectClient, name: str, slots: int) -> float:
    """Occupy slots and return 0, or how long to wait (seconds) before it is worth asking again."""
    try:
        client.increment_concurrency_slots([name], slots, "rate_limit")
    except HTTPStatusError as error:
        if error.response.status_code != _LOCKED:
            raise
        retry_after_s = float(error.response.headers.get("Retry-After", "1"))
        return min(max(retry_after_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
    return 0.0
