"""Workers of a durable queue: the rows of a table that are not final, taken by lease.

A row belongs to the worker whose lease on it has not ended. A worker that dies leaves its lease,
and another one takes the row when it has ended. Leases go by the database's clock. A row whose
worker has died `MOST_ATTEMPTS` times in a row ends in error: it may be what ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.errors import EvalError, StoreError
from evalcore.service.database.outages import DatabaseOutageError
from evalcore.service.execution.lease import HandedBackError, LeaseEndedError, RowLease
from evalcore.service.identifiers import Kind, new_id
from evalcore.service.parts import Parts
from evalcore.service.wire.base import LifecycleStatus
from evalcore.settings import Settings

LOG: Final = logging.getLogger("evalcore.service")
OPEN: Final = (LifecycleStatus.PENDING, LifecycleStatus.QUEUED, LifecycleStatus.RUNNING)
MOST_ATTEMPTS: Final = 3
_IDLE_S: Final = 2.0
_RETRY_S: Final = 5.0

Row = TypeVar("Row")


class ProcessEndedError(EvalError):
    """The process ended each time that it executed a row."""


class QueueWorker(Generic[Row]):
    """Takes one row at a time and executes it, until it is stopped."""

    table: ClassVar[Any]
    waits_elsewhere = False  # whether a row that was claimed waits for a worker of another queue

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self.parts = parts
        self.settings = settings
        self.name = new_id(Kind.WORKER)
        self._woken = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def execute(self, row: Row, lease: RowLease) -> None:
        """Execute a row to its end, or return early if its lease's `end_signals` say so."""
        raise NotImplementedError

    async def claimed(self, session: AsyncSession, row: Row) -> None:
        """Queue what belongs to a row that was claimed or handed back, in the same transaction."""

    async def goes_on(self, row: Row, lease: RowLease) -> bool:  # noqa: ARG002 - of all workers
        """Whether a row is executed again although its worker has died too often."""
        return False

    async def close_exhausted(self, row: Row) -> None:
        """End what a row that is not tried again has left running elsewhere."""

    async def close_ended(self) -> None:
        """End what rows that are final have left running elsewhere."""

    async def failed(self, session: AsyncSession, row: Row, ended: dict[str, Any]) -> None:
        """Change what else a failure changes, in its transaction."""

    async def start(self) -> None:
        """Begin to look for rows."""
        self._task = asyncio.create_task(self._loop())

    def wake(self) -> None:
        """Look for rows now."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop between two items; what is left of a row is taken up by the next worker."""
        self._stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task

    def is_stopping(self) -> bool:
        """Whether the service is about to end."""
        return self._stopping

    async def _loop(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                await self.close_ended()
                async with self.parts.suspects.claiming:
                    row = await self._claim()
                if row is not None:
                    try:
                        await self._execute(row)
                    finally:
                        self.parts.clear_suspect(row.id)
                    continue
            except (DatabaseOutageError, StoreError, OSError) as error:
                LOG.warning("%s: the queue waits: %s", self.table.__tablename__, error)
            except Exception:
                # A fault of ours must not end the queue.
                LOG.exception("%s: the queue waits", self.table.__tablename__)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _IDLE_S)

    @property
    def is_free(self) -> ColumnElement[bool]:
        """The condition that no worker has a lease on a row."""
        until = self.table.lease_until
        return or_(until.is_(None), until < self.parts.database.moment())

    async def _claim(self) -> Any:
        """Take a row that no other worker has; None if there is none.

        It is the oldest one of a project that has the fewest rows in execution. A row whose worker
        died before waits while another such row is executed in this process.
        """
        table, suspects = self.table, self.parts.suspects
        free = select(table).where(table.status.in_(OPEN), self.is_free)
        if suspects.in_execution is not None:
            free = free.where(table.attempts == 0)
        async with self.parts.database.transaction() as session:
            executing = await self._executing(session)
            if executing:
                free = free.order_by(case(executing, value=table.project_id, else_=0))
            row: Any = await session.scalar(
                free.order_by(table.number).limit(1).with_for_update(skip_locked=True)
            )
            if row is None:
                return None
            row.worker = self.name
            row.lease_until = self.parts.database.moment(self.parts.lease_s)
            row.attempts += 1
            if self.waits_elsewhere:
                row.status = LifecycleStatus.QUEUED
            else:
                row.status = LifecycleStatus.RUNNING
                row.started_at = row.started_at or datetime.now(UTC)
            await self.claimed(session, row)
        if row.attempts > 1:
            suspects.in_execution = row.id
        return row

    async def _executing(self, session: AsyncSession) -> dict[str, int]:
        """Return how many rows of each project workers have."""
        table = self.table
        counted = await session.execute(
            select(table.project_id, func.count())
            .where(table.status.in_(OPEN), table.lease_until >= self.parts.database.moment())
            .group_by(table.project_id)
        )
        return {project_id: int(count) for project_id, count in counted}

    async def _execute(self, row: Any) -> None:
        database, lease_s = self.parts.database, self.parts.lease_s
        lease = RowLease(database, self.table, row.id, self.name, self.is_stopping, lease_s)
        try:
            if row.attempts > MOST_ATTEMPTS and not await self.goes_on(row, lease):
                await self.close_exhausted(row)
                raise _process_ended(row.attempts - 1)
            # A run that is planned into a store that is not mounted would be lost with it.
            await self.parts.objects.check()
            async with lease.renewing():
                await self.execute(row, lease)
        except LeaseEndedError:
            LOG.info("%s: another worker has it, or it is final", row.id)
            await self._release(row, 0)
        except HandedBackError:
            await self._release(row, 0)
        except (StoreError, DatabaseOutageError, OSError) as error:
            LOG.warning("%s waits: %s", row.id, error)
            await self._release(row, _RETRY_S)
        except EvalError as error:
            await self._fail(row, lease, {"code": type(error).__name__, "message": str(error)})
        except Exception as error:
            # A fault of ours ends one row and not the queue.
            LOG.exception("%s failed", row.id)
            message = f"unexpected fault: {type(error).__name__}"
            await self._fail(row, lease, {"code": "internal_error", "message": message})
        else:
            if self._stopping or lease.has_ended:
                await self._release(row, 0)

    async def _release(self, row: Any, after_s: float) -> None:
        """Let any worker take the row, after some seconds; the attempt does not count.

        A database that is away is waited for: else its outages would count.
        """
        while True:
            try:
                return await self._hand_back(row, after_s)
            except DatabaseOutageError:
                if self._stopping:
                    raise
                await asyncio.sleep(_IDLE_S)

    async def _hand_back(self, row: Any, after_s: float) -> None:
        table, until = self.table, self.parts.database.moment(after_s)
        async with self.parts.database.transaction() as session:
            changed: Any = await session.execute(
                update(table)
                .where(table.id == row.id, table.worker == self.name)
                .values(
                    lease_until=until,
                    status=case(
                        (table.status.in_(OPEN), LifecycleStatus.QUEUED), else_=table.status
                    ),
                    attempts=case((table.attempts > 0, table.attempts - 1), else_=0),
                )
            )
            if changed.rowcount:
                await self.claimed(session, row)

    async def _fail(self, row: Any, lease: RowLease, error: dict[str, str]) -> None:
        """End a row that cannot be executed; one of another worker is left alone."""
        ended = {
            "status": LifecycleStatus.ERROR,
            "error": error,
            "completed_at": datetime.now(UTC),
        }
        async with self.parts.database.transaction() as session:
            changed: Any = await session.execute(
                update(self.table).where(*lease.mine).values(**ended)
            )
            if changed.rowcount:
                await self.failed(session, row, ended)


def _process_ended(times: int) -> ProcessEndedError:
    return ProcessEndedError(
        f"the process ended {times} times while it executed this, without a further result: does a "
        "block end the process, or need more memory than it has? A new run tries again"
    )
