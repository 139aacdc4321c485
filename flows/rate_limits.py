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

from httpx import HTTPError, HTTPStatusError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound

from evalcore.model.exchange import ErrorKind, ProviderError

BLOCK = 50
# A call uses hundreds of tokens.
_TOKEN_BLOCK = 5_000
_LOCKED = 423
_LONGEST_WAIT_S = 30.0


class PrefectRates:
    """Takes slots for calls (`evalcore.execution.rates.SharedRates`); safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[str, _Block] = {}
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
            known = self._blocks.setdefault(name, _Block(name, block))
        if not known.spend(amount):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, known.take, amount)


class _Block:
    """Slots of one limit that were taken and are not spent yet."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._lock = threading.Lock()
        self._left = 0
        self._limit: int | None = None
        self._unlimited = False

    def spend(self, amount: int) -> bool:
        """Spend slots if there are so many; return whether that was so."""
        with self._lock:
            if self._unlimited:
                return True
            if self._left < amount:
                return False
            self._left -= amount
            return True

    def take(self, amount: int) -> None:
        """Spend slots; blocks, in its one thread, until the server has given enough of them."""
        if self.spend(amount):
            return
        try:
            with get_client(sync_client=True) as client:
                if self._limit is None and not self._find(client):
                    return
                while not self.spend(amount):
                    slots = max(1, min(self._limit or 1, max(self._size, amount - self._left)))
                    _occupy(client, self._name, slots)
                    with self._lock:
                        self._left += slots
        except HTTPError as error:
            message = f"Prefect's server does not give rate limit '{self._name}': {error}"
            raise ProviderError(ErrorKind.RATE, message, status=503) from error

    def _find(self, client: SyncPrefectClient) -> bool:
        """Look for the limit; return whether there is one that is active and decays."""
        try:
            found = client.read_global_concurrency_limit_by_name(self._name)
        except ObjectNotFound:
            found = None
        if found is None or not found.active or not found.slot_decay_per_second:
            with self._lock:
                self._unlimited = True
            return False
        self._limit = found.limit
        return True


def _occupy(client: SyncPrefectClient, name: str, slots: int) -> None:
    while True:
        try:
            client.increment_concurrency_slots([name], slots, "rate_limit")
            return
        except HTTPStatusError as error:
            if error.response.status_code != _LOCKED:
                raise
            asked = float(error.response.headers.get("Retry-After", "1"))
        time.sleep(min(max(asked, 0.05), _LONGEST_WAIT_S))
