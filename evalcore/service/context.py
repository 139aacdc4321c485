"""What a running service has: its database, its store, its tokens, its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from evalcore.errors import StoreError
from evalcore.service.auth import Caller, RateLimiter, Tokens
from evalcore.service.db import Database
from evalcore.service.metrics import ServiceMetrics
from evalcore.storage.store import ObjectStore

T = TypeVar("T")
MAX_BODY_BYTES: Final = 10_000_000
_ANSWER_S: Final = 30.0
# Written once: a store without it is another one.
_MARKER: Final = "service/store"


class Worker(Protocol):
    """Something that runs as long as the service does."""

    async def start(self) -> None:
        """Begin; return at once."""

    async def stop(self) -> None:
        """Finish what can be finished soon, hand back the rest."""

    def wake(self) -> None:
        """Look for work now."""


@dataclass
class Context:
    """Everything that routes use. `open_to` is the caller of requests without a token.

    Those have to name a loopback address.
    """

    database: Database
    store: ObjectStore
    tokens: Tokens
    rates: RateLimiter
    open_to: Caller | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    workers: Sequence[Worker] = ()
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    _knows_store: bool = field(default=False, init=False)

    async def start(self) -> None:
        """Start the workers; a store that is away is waited for."""
        with suppress(StoreError):
            await self.from_store(self.check_store)
        for worker in self.workers:
            await worker.start()

    def wake(self) -> None:
        """Tell the workers that there is something to do."""
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Stop the workers, all at once, and close the database."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        await self.database.close()

    def check_store(self) -> None:
        """Raise `StoreError` unless the store is the one that it was when the service started.

        What is written into the folder below a volume that is not mounted would be lost.
        """
        if not self.store.exists(_MARKER):
            if self._knows_store:
                raise StoreError(
                    f"{_MARKER} is gone from {self.store.url}: the store was removed or is not "
                    "mounted. Put it back, or start the service again to begin an empty one"
                )
            self.store.put_if_absent(_MARKER, b"evalcore\n")
        self._knows_store = True

    async def from_store(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a method of the store returns, called in a thread.

        Raises `StoreError` if it does not answer: a request must not wait for longer than a client.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await asyncio.to_thread(function, *arguments)
        except TimeoutError:
            message = f"{self.store.url} does not answer within {_ANSWER_S:g} s"
            raise StoreError(message) from None
