"""The parts of a running service: database, store, tokens, limits, and its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from evalcore.errors import StoreError
from evalcore.service.access.limits import RateLimiter
from evalcore.service.access.tokens import Caller, Scope, Tokens, project_id
from evalcore.service.database.sessions import Database
from evalcore.service.metrics import ServiceMetrics
from evalcore.service.payloads import Payloads
from evalcore.service.run_counts import RunCountsCache
from evalcore.service.stored_objects import StoredObjects
from evalcore.storage.store import ObjectStore

MAX_BODY_BYTES = 10_000_000
LEASE_S = 15.0
RUNS_AT_ONCE = 4


class Worker(Protocol):
    """Something that runs as long as the service does."""

    async def start(self) -> None:
        """Begin; return at once."""

    async def stop(self) -> None:
        """Finish what can be finished soon, hand back the rest."""

    def wake(self) -> None:
        """Look for work now."""


@dataclass
class Suspects:
    """Which row in execution may be the one that ended the process before.

    There is one at the most, so that a row that ends the process takes no other suspect with it.
    `claiming` is held by the worker that looks for a row.
    """

    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_execution: str | None = None


@dataclass
class Parts:
    """Everything that routes use. `open_to` is the caller of requests without a token.

    Those have to name a loopback address or one of `allowed_hosts`.
    """

    database: Database
    store: ObjectStore
    tokens: Tokens
    rates: RateLimiter
    open_to: Caller | None = None
    allowed_hosts: Sequence[str] = ()
    max_body_bytes: int = MAX_BODY_BYTES
    lease_s: float = LEASE_S
    workers: Sequence[Worker] = ()
    objects: StoredObjects = field(init=False)
    payloads: Payloads = field(init=False)
    suspects: Suspects = field(default_factory=Suspects)
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    run_counts: RunCountsCache = field(default_factory=RunCountsCache)

    def __post_init__(self) -> None:
        self.objects = StoredObjects(self.store)
        self.payloads = Payloads(self.objects)

    async def start(self) -> None:
        """Start the workers; a store that is away is waited for."""
        with suppress(StoreError):
            await self.objects.check()
        for worker in self.workers:
            await worker.start()

    def wake(self) -> None:
        """Tell the workers that there is something to do."""
        for worker in self.workers:
            worker.wake()

    def clear_suspect(self, row_id: str) -> None:
        """Let the next row be executed whose worker died; this one has ended or come forward."""
        if self.suspects.in_execution == row_id:
            self.suspects.in_execution = None
            self.wake()

    async def stop(self) -> None:
        """Stop the workers, all at once, and close the database."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        self.objects.close()
        await self.database.close()


async def open_caller(database: Database) -> Caller:
    """Return the caller of a service without tokens: the admin of the project `default`."""
    async with database.transaction() as session:
        return Caller(await project_id(session, "default", datetime.now(UTC)), Scope.ADMIN)
