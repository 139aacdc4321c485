"""The lease of a worker on one row of a queue: renewed until the row is final or another's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import select, update

from evalcore.errors import EvalError, StoreError
from evalcore.service.database.outages import DatabaseOutageError
from evalcore.service.database.sessions import Database
from evalcore.service.execution.end_signals import EndSignals
from evalcore.service.wire.base import FINAL

LOOK_S: Final = 0.25
_RENEWALS: Final = 3  # in the time of one lease
# What the last look at the database may take.
_LAST_LOOK_S: Final = 2.0
# What a service that ends waits for the items that run; they are cancelled then, and the next
# worker executes them again.
_DRAIN_S: Final = 15.0
_HAND_BACK_S: Final = _DRAIN_S + 5.0


class LeaseEndedError(EvalError):
    """The row is final, or another worker has it: what is left of it is not this worker's."""


class HandedBackError(EvalError):
    """The service ends before the row does."""


class RowLease:
    """A worker's right to execute a row; `is_stopping` says whether the service is about to end."""

    def __init__(
        self,
        database: Database,
        table: Any,
        row_id: str,
        worker: str,
        is_stopping: Callable[[], bool],
        lease_s: float,
    ) -> None:
        self._database, self._table = database, table
        self._row_id, self._worker = row_id, worker
        self._is_stopping = is_stopping
        self._lease_s = lease_s
        self._renewed_s = time.monotonic()
        self._stopping_s: float | None = None
        self._has_ended = False

    @property
    def mine(self) -> tuple[Any, Any, Any]:
        """The conditions that the row is not final and still this worker's."""
        table = self._table
        return (
            table.id == self._row_id,
            table.worker == self._worker,
            table.status.not_in(FINAL),
        )

    @property
    def end_signals(self) -> EndSignals:
        """How the execution of the row learns that it has to end."""
        return EndSignals(self._is_stopped, self._is_aborted)

    def _is_stopped(self) -> bool:
        return self._has_ended or self._is_stopping()

    def _is_aborted(self) -> bool:
        """Whether the row is not this worker's, or the service has waited long enough for it."""
        if self._is_stopping() and self._stopping_s is None:
            self._stopping_s = time.monotonic()
        is_late = self._stopping_s is not None and time.monotonic() - self._stopping_s > _DRAIN_S
        return self._has_ended or is_late

    @property
    def has_ended(self) -> bool:
        """Whether the row is final, another worker's, or given up."""
        return self._has_ended

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the lease in the background."""
        done = asyncio.Event()
        keeping = asyncio.create_task(self._keep(done))
        try:
            yield
        finally:
            done.set()
            # A look that is cut off costs its connection, and a traceback in the log.
            await asyncio.wait({keeping}, timeout=_LAST_LOOK_S)
            keeping.cancel()

    async def _keep(self, done: asyncio.Event) -> None:
        while not self._has_ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), LOOK_S)
            if done.is_set():
                return
            try:
                is_mine = await self._look()
            except DatabaseOutageError:
                # Whose the row is cannot be told once the lease may have ended.
                is_mine = time.monotonic() - self._renewed_s < self._lease_s
            if not done.is_set():
                self._has_ended = not is_mine

    async def _look(self) -> bool:
        """Renew the lease if it is time to; whether the row is still this worker's."""
        now_s = time.monotonic()
        if now_s - self._renewed_s < self._lease_s / _RENEWALS:
            async with self._database.reading() as session:
                return await session.scalar(select(self._table.id).where(*self.mine)) is not None
        until = self._database.moment(self._lease_s)
        async with self._database.transaction() as session:
            renewed: Any = await session.execute(
                update(self._table).where(*self.mine).values(lease_until=until)
            )
        self._renewed_s = now_s
        return bool(renewed.rowcount)

    async def result_of(
        self, executing: asyncio.Future[Any], look: Callable[[], Awaitable[None]] | None = None
    ) -> Any:
        """Return what an execution in a thread gives; `look` is awaited from time to time.

        An outage of the database or the store during `look` passes. Raises `HandedBackError` if
        the service ends and the execution does not.
        """
        ends_s = None
        try:
            while not executing.done():
                await asyncio.wait({executing}, timeout=LOOK_S)
                if look is not None:
                    with contextlib.suppress(DatabaseOutageError, StoreError):
                        await look()
                if ends_s is None and self._is_stopping():
                    ends_s = time.monotonic() + _HAND_BACK_S
                if ends_s is not None and time.monotonic() > ends_s:
                    raise HandedBackError("the service ends")
        except HandedBackError:
            self._has_ended = True
            raise
        except BaseException:
            # The thread goes on until it is told to stop: without its end, the next worker of the
            # row would execute the same items at the same time.
            self._has_ended = True
            await asyncio.wait({executing})
            raise
        return executing.result()
