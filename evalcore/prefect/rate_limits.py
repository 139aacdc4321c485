"""Rate limits of providers that all workers share: Prefect's global concurrency limits.

A limit is called `evalcore-NAME-requests` or `evalcore-NAME-tokens`, NAME being the provider's (the
name of the target, or what evalcore.toml calls it); its slots decay, `slot_decay_per_second` being
the rate. Where there is none, nothing is limited. A look at the server takes 15 ms, so slots are
taken in blocks and spent here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from httpx import HTTPError, HTTPStatusError
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from evalcore.model.exchange import ErrorKind, ProviderError

_BLOCK: Final = 50
# A call uses hundreds of tokens.
_TOKEN_BLOCK: Final = 5_000
_LOCKED: Final = 423
_LONGEST_WAIT_S: Final = 30.0


class PrefectRates:
    """Takes slots for calls (`execution.rates.SharedRates`), in one event loop."""

    def __init__(self) -> None:
        self._slots: dict[str, _Slots] = {}

    async def take(self, provider: str, tokens: int) -> None:
        """Return when one more request of about so many tokens may go out.

        Raises `ProviderError` (worth a retry) if the server does not answer.
        """
        for unit, amount, block in (("requests", 1, _BLOCK), ("tokens", tokens, _TOKEN_BLOCK)):
            name = f"evalcore-{provider}-{unit}"
            await self._slots.setdefault(name, _Slots(name, block)).take(amount)


class _Slots:
    """Slots of one limit that were taken and are not spent yet."""

    def __init__(self, name: str, block: int) -> None:
        self._name, self._block = name, block
        self._turn = asyncio.Lock()
        self._left = 0
        # Of the limit: its slots, and how many of them decay in a second. None if there is none.
        self._limit: tuple[int, float] | None = None
        self._is_known = False

    async def take(self, amount: int) -> None:
        """Spend slots; callers wait for their turn."""
        async with self._turn:
            while (not self._is_known or self._limit is not None) and self._left < amount:
                # In a thread: nobody else waits for the server's answer.
                await asyncio.sleep(await asyncio.to_thread(self._fill, amount - self._left))
            self._left -= amount

    def _fill(self, missing: int) -> float:
        """Take a block from the server; return how long to wait (seconds) if it has none."""
        try:
            with get_client(sync_client=True) as client:
                if not self._is_known:
                    try:
                        found = client.read_global_concurrency_limit_by_name(self._name)
                        if found.active and found.slot_decay_per_second:
                            self._limit = (found.limit, found.slot_decay_per_second)
                    except ObjectNotFound:
                        pass
                    self._is_known = True
                if self._limit is None:
                    return 0.0
                limit, decay_per_s = self._limit
                slots = max(1, min(limit, max(self._block, missing)))
                client.increment_concurrency_slots([self._name], slots, "rate_limit")
        except HTTPError as error:
            if isinstance(error, HTTPStatusError) and error.response.status_code == _LOCKED:
                return min(slots / decay_per_s, _LONGEST_WAIT_S)
            message = f"Prefect's server does not give rate limit '{self._name}': {error}"
            raise ProviderError(ErrorKind.RATE, message, status=503) from error
        self._left += slots
        return 0.0
