"""Workers of a durable queue: the rows of a table that are not final, taken by lease.

A row belongs to the worker whose lease on it has not ended. A worker that dies leaves its lease,
and another one takes the row when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar

from sqlalchemy import or_, select, update
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
_IDLE_S: Final = 2.0
_RETRY_S: Final = 5.0

Row = TypeVar("Row")


class QueueWorker(Generic[Row]):
    """Takes one row at a time and executes it, until it is stopped."""

    table: ClassVar[Any]

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
        """Change what else a claim changes, in its transaction."""

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
                row = await self._claim()
                if row is not None:
                    await self._execute(row)
                    continue
            except (DatabaseOutageError, StoreError, OSError) as error:
                LOG.warning("%s: the queue waits: %s", self.table.__tablename__, error)
            except Exception:
                # A fault of ours must not end the queue.
                LOG.exception("%s: the queue waits", self.table.__tablename__)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _IDLE_S)

    async def _claim(self) -> Any:
        """Take the oldest row that no other worker has; None if there is none."""
        now, table = datetime.now(UTC), self.table
        query = (
            select(table)
            .where(
                table.status.in_(OPEN), or_(table.lease_until.is_(None), table.lease_until < now)
            )
            .order_by(table.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        async with self.parts.database.transaction() as session:
            row: Any = await session.scalar(query)
            if row is None:
                return None
            row.worker, row.lease_until = self.name, now + timedelta(seconds=self.parts.lease_s)
            row.status = LifecycleStatus.RUNNING
            row.started_at = row.started_at or now
            await self.claimed(session, row)
        return row

    async def _execute(self, row: Any) -> None:
        database, lease_s = self.parts.database, self.parts.lease_s
        lease = RowLease(database, self.table, row.id, self.name, self.is_stopping, lease_s)
        try:
            with lease.renewing():
                await self.execute(row, lease)
        except LeaseEndedError:
            LOG.info("%s: another worker has it, or it is final", row.id)
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
            if self._stopping:
                await self._release(row, 0)

    async def _release(self, row: Any, after_s: float) -> None:
        """Let any worker take the row, after some seconds."""
        until = datetime.now(UTC) + timedelta(seconds=after_s)
        async with self.parts.database.transaction() as session:
            await session.execute(
                update(self.table)
                .where(self.table.id == row.id, self.table.worker == self.name)
                .values(lease_until=until)
            )

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
