"""The lease of a worker on one row of a queue: renewed until the row is final or another's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import (
    DamagedRunError,
    EvalError,
    ObjectNotFoundError,
    RunConflictError,
    StoreError,
)
from evalcore.model.run import Manifest, State
from evalcore.pipeline.execute import ALONE_AFTER
from evalcore.pipeline.executors import Runner
from evalcore.pipeline.lease import read_lease
from evalcore.pipeline.states import cancel_run
from evalcore.service.context import DamagedPayloadError, Parts
from evalcore.service.db import Database, DatabaseOutageError
from evalcore.service.engine import (
    EndSignals,
    FrozenEval,
    ItemResult,
    WorkflowOutcome,
    attend_submitted,
    cancel_submitted,
    committed_results,
    execute_evals,
    execute_workflow,
    is_complete,
    plan_evals,
    plan_workflow,
    planned_run,
    runs_suite,
)
from evalcore.service.fingerprints import result_fingerprints
from evalcore.service.models import FINAL, LifecycleStatus
from evalcore.service.runs import point_to_ending
from evalcore.service.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    EvalRunRow,
    Kind,
    WorkflowRunRow,
    WorkflowStepRow,
    WorkflowVersionRow,
    new_id,
)
from evalcore.settings import Settings
from evalcore.storage.layout import new_run_id
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore

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


def new_engine_run() -> str:
    """Return the id of a run that is about to be planned."""
    return new_run_id(datetime.now(UTC), os.urandom(3))


def take_up(store: ObjectStore, suite: str, run_id: str) -> StoredRun | None:
    """Return a run whose whole plan is stored; one that lacks a part is cancelled, and None."""
    run = open_run(store, suite, run_id)
    manifest = _manifest(run)
    if manifest is None:
        return None
    if manifest.is_planned:
        return run
    cancel_run(run, now=datetime.now(UTC))
    return None


def end_unused(run: StoredRun) -> None:
    """Cancel a run that this process has planned, unless another one has taken it up."""
    manifest = _manifest(run)
    if manifest is not None and read_lease(run) is None:
        cancel_run(run, now=datetime.now(UTC))


def end_run(store: ObjectStore, suite: str, run_id: str, runner: Runner | None) -> None:
    """Cancel a run that no worker of the service executes, and its flow run; an ended one stays.

    Raises `StoreError` and `RunnerAwayError`.
    """
    run = open_run(store, suite, run_id)
    manifest = _manifest(run)
    if manifest is None or manifest.state is State.COMPLETED:
        return
    if runner is not None and manifest.is_planned:
        try:
            cancel_submitted(run, runner)
        except RunConflictError:  # it was not submitted
            pass
        else:
            return
    if manifest.state is State.RUNNING:
        cancel_run(run, now=datetime.now(UTC))


def _manifest(run: StoredRun) -> Manifest | None:
    try:
        return run.manifest()
    except (ObjectNotFoundError, DamagedRunError):
        return None


async def version_of(session: AsyncSession, run: EvalRunRow | WorkflowRunRow) -> WorkflowVersionRow:
    """Return the version of a run; raise `EvalError` if it does not exist."""
    version = await session.scalar(
        select(WorkflowVersionRow).where(
            WorkflowVersionRow.workflow_id == run.workflow_id,
            WorkflowVersionRow.version_id == run.version_id,
        )
    )
    if version is None:
        raise EvalError(f"workflow version '{run.version_id}' does not exist")
    return version


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns that is called in a thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def call() -> None:
        try:
            value = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            loop.call_soon_threadsafe(_fail, future, error)
        else:
            loop.call_soon_threadsafe(_succeed, future, value)

    threading.Thread(target=call, name=function.__name__, daemon=True).start()
    return await future


def _succeed(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


_SHARDS_AT_ONCE: Final = 100
_CLOSE_S: Final = 15.0  # until an engine's run that could not be ended is tried again


class EvalWorker(QueueWorker[EvalRunRow]):
    """Executes one run at a time; what is committed of a run is not executed again."""

    table = EvalRunRow

    def __init__(self, parts: Parts, settings: Settings, runner: Runner | None = None) -> None:
        super().__init__(parts, settings)
        self.runner = runner
        self.waits_elsewhere = runner is not None

    async def execute(self, row: EvalRunRow, lease: RowLease) -> None:
        """Execute a run to its end, unless it is cancelled or the service ends."""
        await _RunExecution(self, row, lease).run()

    async def goes_on(self, row: EvalRunRow, lease: RowLease) -> bool:
        """Whether the attempts until now have a result, or blame an eval of the run."""
        if row.engine_run is None:
            return False
        if await _RunExecution(self, row, lease).has_come_forward():
            return True
        if row.attempts > MOST_ATTEMPTS + 1:
            return False
        run = planned_run(self.parts.store, row.workflow_id, row.engine_run)
        held = await in_thread(lambda: read_lease(run))
        if held is None or held.released:
            return False
        # The next attempt executes it alone, and ends the eval that ends its process in error.
        return any(held.deaths.get(shard, 0) + 1 >= ALONE_AFTER for shard in held.in_flight)

    async def close_exhausted(self, row: EvalRunRow) -> None:
        """End a run of which every result is there: its process died before it said so."""
        open_children = select(EvalResultRow.id).where(
            EvalResultRow.run_id == row.id, EvalResultRow.status.in_(OPEN)
        )
        async with self.parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(EvalRunRow.id == row.id, EvalRunRow.worker == self.name)
                .where(EvalRunRow.status.in_(OPEN), ~open_children.exists())
                .values(
                    status=LifecycleStatus.COMPLETED,
                    completed_at=datetime.now(UTC),
                    cancel_requested=True,
                )
            )

    async def claimed(self, session: AsyncSession, row: EvalRunRow) -> None:
        """Queue the children that are not final."""
        await session.execute(
            update(EvalResultRow)
            .where(EvalResultRow.run_id == row.id, EvalResultRow.status.in_(OPEN))
            .values(status=LifecycleStatus.QUEUED)
        )

    async def failed(self, session: AsyncSession, row: EvalRunRow, ended: dict[str, Any]) -> None:
        """End the children that are not final."""
        await point_to_ending(session, row.id)
        await session.execute(
            update(EvalResultRow)
            .where(EvalResultRow.run_id == row.id, EvalResultRow.status.in_(OPEN))
            .values(**ended)
        )
        await session.execute(
            update(EvalRunRow).where(EvalRunRow.id == row.id).values(cancel_requested=True)
        )

    async def close_ended(self) -> None:
        """Cancel the engine's run, and the flow run, of one run that has ended without them.

        They are left by a worker that died, and by a run that was cancelled or could not go on.
        """
        async with self.parts.database.transaction() as session:
            row = await session.scalar(
                select(EvalRunRow)
                .where(
                    EvalRunRow.cancel_requested.is_(True),
                    EvalRunRow.status.not_in(OPEN),
                    or_(self.is_free, EvalRunRow.worker == self.name),
                )
                .order_by(EvalRunRow.number)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            if row is None:
                return
            row.worker = self.name
            row.lease_until = self.parts.database.moment(self.parts.lease_s)
        engine_run = row.engine_run or row.planning_run
        changes: dict[str, Any] = {"cancel_requested": False}
        if engine_run is not None:
            try:
                store = self.parts.store
                await in_thread(end_run, store, row.workflow_id, engine_run, self.runner)
            except EvalError as error:
                LOG.warning("%s has ended, and its run %s has not: %s", row.id, engine_run, error)
                changes = {"worker": None, "lease_until": self.parts.database.moment(_CLOSE_S)}
        async with self.parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow).where(EvalRunRow.id == row.id).values(**changes)
            )


class _RunExecution:
    """One run from its claim to its end."""

    def __init__(self, worker: EvalWorker, row: EvalRunRow, lease: RowLease) -> None:
        self._row, self._lease = row, lease
        self._parts, self._settings, self._runner = worker.parts, worker.settings, worker.runner
        self._children: dict[str, EvalResultRow] = {}
        self._revisions: dict[str, EvalRevisionRow] = {}
        self._definition: dict[str, Any] = {}
        self._done: set[int] = set()
        # How many attempts there were since a result that is written now: this one, until it has
        # given one itself. Said once.
        self._attempts, self._counts = 1, True
        self._began = threading.Event()
        self._is_marked = False

    async def run(self) -> None:
        """Execute the run; raises what the store or the engine raises."""
        await self._read()
        engine_run = self._row.engine_run or await self._plan()
        if engine_run is None:
            await self._end()
            return
        run = planned_run(self._parts.store, self._row.workflow_id, engine_run)
        if self._runner is None:
            await self._mark_running()
        # What an earlier worker has committed counts as progress, also if this one dies.
        await self._write_committed(run)
        self._attempts, self._counts = 0, True
        executing = asyncio.ensure_future(self._execution(run))

        async def look() -> None:
            if self._began.is_set() and not self._is_marked:
                await self._mark_running()
            await self._write_committed(run)

        try:
            complete = await self._lease.result_of(executing, look)
        except EvalError:
            # What was committed until then is a result.
            with contextlib.suppress(EvalError):
                await look()
            raise
        await look()
        if complete:
            await self._end()

    async def has_come_forward(self) -> bool:
        """Write the results that are in the store and not in the database; whether there are."""
        await self._read()
        assert self._row.engine_run is not None  # noqa: S101 - it is asked before
        store, suite = self._parts.store, self._row.workflow_id
        await self._write_committed(planned_run(store, suite, self._row.engine_run))
        return not self._counts

    async def _execution(self, run: StoredRun) -> Any:
        """Execute the run by the configured runner, without one in this process."""
        arguments = (run, self._settings, self._lease.end_signals)
        if self._runner is not None:
            # What other processes execute does not end this one.
            await self._count_attempt(-1)
            began = self._began.set
            reason = await in_thread(attend_submitted, *arguments, self._runner, began)
            if reason is None:
                complete = await in_thread(is_complete, run)
                if complete:
                    began()
                return complete
            LOG.warning("run %s goes on in the service's own process: %s", run.run_id, reason)
            await self._count_attempt(1)
            await self._mark_running()
        return await in_thread(execute_evals, *arguments)

    async def _count_attempt(self, more: int) -> None:
        attempts = EvalRunRow.attempts + more
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(*self._lease.mine)
                .values(attempts=case((attempts > 0, attempts), else_=0))
            )

    async def _read(self) -> None:
        row = self._row
        async with self._parts.database.reading() as session:
            children = await session.scalars(
                select(EvalResultRow)
                .where(EvalResultRow.run_id == row.id)
                .order_by(EvalResultRow.number)
            )
            self._children = {child.eval_id: child for child in children}
            revisions = await session.scalars(
                select(EvalRevisionRow)
                .join(EvalResultRow, EvalResultRow.revision_id == EvalRevisionRow.id)
                .where(EvalResultRow.run_id == row.id)
            )
            self._revisions = {revision.id: revision for revision in revisions}
            version = await version_of(session, row)
        self._definition = await self._parts.payloads.get(
            version.definition, version.definition_ref
        )

    async def _plan(self) -> str | None:
        """Return the id of the planned run: that of an earlier worker if its plan is whole.

        None if there is no eval to be executed: of none the inputs can be read.
        """
        store, suite = self._parts.store, self._row.workflow_id
        if self._row.planning_run is not None:
            taken_up = await in_thread(take_up, store, suite, self._row.planning_run)
            if taken_up is not None:
                await self._change(engine_run=taken_up.run_id)
                return str(taken_up.run_id)
        evals = await self._readable()
        if not evals:
            return None
        run = planned_run(store, suite, new_engine_run())
        await self._change(planning_run=run.run_id)
        await in_thread(plan_evals, run, suite, self._definition, evals)
        try:
            await self._change(engine_run=run.run_id)
        except LeaseEndedError:
            await in_thread(end_unused, run)
            raise
        return run.run_id

    async def _change(self, **values: Any) -> None:
        """Change the row. Raises `LeaseEndedError` if it is final or another worker's."""
        async with self._parts.database.transaction() as session:
            changed: Any = await session.execute(
                update(EvalRunRow).where(*self._lease.mine).values(**values)
            )
        if not changed.rowcount:
            raise LeaseEndedError("the run was taken over or cancelled while it was planned")

    async def _readable(self) -> list[FrozenEval]:
        """Return the evals to be executed; those whose inputs cannot be read end in error."""
        evals: list[FrozenEval] = []
        damaged: list[ItemResult] = []
        for child in self._children.values():
            if child.status not in OPEN:
                continue
            try:
                evals.append(await self._frozen(child))
            except DamagedPayloadError as error:
                now = datetime.now(UTC)
                reason = {"code": type(error).__name__, "message": f"its inputs: {error}"}
                damaged.append(ItemResult(child.eval_id, now, now, None, None, reason))
        await self._write(damaged)
        return evals

    async def _frozen(self, child: EvalResultRow) -> FrozenEval:
        revision = self._revisions[child.revision_id]
        inputs = await self._parts.payloads.get(revision.handle_inputs, revision.handle_inputs_ref)
        assertion = EvalAssertion.model_validate(revision.assertion)
        return FrozenEval(child.eval_id, revision.block_id, inputs, assertion)

    async def _mark_running(self) -> None:
        """Say that the run and what is left of it are executed: here, or by another's worker."""
        now = datetime.now(UTC)
        async with self._parts.database.transaction() as session:
            started = func.coalesce(EvalRunRow.started_at, now)
            await session.execute(
                update(EvalRunRow)
                .where(*self._lease.mine)
                .values(status=LifecycleStatus.RUNNING, started_at=started)
            )
            await session.execute(
                update(EvalResultRow)
                .where(EvalResultRow.run_id == self._row.id, EvalResultRow.status.in_(OPEN))
                .values(status=LifecycleStatus.RUNNING, started_at=now)
            )
        self._is_marked = True

    async def _write_committed(self, run: StoredRun) -> None:
        shards = await asyncio.to_thread(lambda: [*committed_results(run, self._done)])
        for start in range(0, len(shards), _SHARDS_AT_ONCE):
            chunk = shards[start : start + _SHARDS_AT_ONCE]
            await self._write([result for _, results in chunk for result in results])
            self._done.update(shard for shard, _ in chunk)

    async def _write(self, results: Sequence[ItemResult]) -> None:
        """Write results that are final; those of children that are final already stay."""
        rows = [await self._final_values(result) for result in results]
        # In one order, so that two runs of the same evals cannot wait for each other.
        rows.sort(key=lambda row: row[0].eval_id)
        written: list[dict[str, Any]] = []
        async with self._parts.database.transaction() as session:
            for child, values in rows:
                changed = await session.execute(
                    update(EvalResultRow)
                    .where(EvalResultRow.id == child.id, EvalResultRow.status.in_(OPEN))
                    .values(**values)
                )
                if changed.rowcount:  # type: ignore[attr-defined]  # of an UPDATE there is one
                    await self._point_to(session, child, values)
                    written.append(values)
            if written and self._counts:
                await session.execute(
                    update(EvalRunRow).where(*self._lease.mine).values(attempts=self._attempts)
                )
        if written and self._attempts == 0:
            self._parts.clear_suspect(self._row.id)
        self._counts = self._counts and not written
        for values in written:
            self._parts.metrics.count_result(values["status"], values["verdict"])

    async def _final_values(self, result: ItemResult) -> tuple[EvalResultRow, dict[str, Any]]:
        child = self._children[result.eval_id]
        revision = self._revisions[child.revision_id]
        # An execution that failed has no verdict: its assertion was not evaluated.
        assertion = None if result.error is not None else result.assertion_result
        project, payloads = self._row.project_id, self._parts.payloads
        outputs = await payloads.put(result.handle_outputs, project)
        result_payload = await payloads.put(assertion, project)
        status = LifecycleStatus.COMPLETED if result.error is None else LifecycleStatus.ERROR
        return child, {
            "status": status,
            "error": result.error,
            "verdict": None if assertion is None else assertion["outcome"],
            "handle_outputs": outputs.inline,
            "handle_outputs_ref": outputs.ref,
            "assertion_result": result_payload.inline,
            "assertion_result_ref": result_payload.ref,
            "started_at": result.started_at,
            "completed_at": result.completed_at,
            "fingerprints": result_fingerprints(
                self._definition,
                revision.block_id,
                inputs=revision.inputs_fingerprint,
                assertion=revision.assertion_fingerprint,
            ),
        }

    async def _point_to(self, session: Any, child: EvalResultRow, values: dict[str, Any]) -> None:
        """Make the result the latest of its eval."""
        latest = {"latest_result_id": child.id}
        if values["status"] == LifecycleStatus.COMPLETED and values["verdict"] == "passed":
            latest["latest_passing_id"] = child.id
        elif values["status"] == LifecycleStatus.COMPLETED and values["verdict"] == "failed":
            latest["latest_failing_id"] = child.id
        await session.execute(update(EvalRow).where(EvalRow.id == child.eval_id).values(**latest))

    async def _end(self) -> None:
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(EvalRunRow.id == self._row.id, EvalRunRow.status.in_(OPEN))
                .values(status=LifecycleStatus.COMPLETED, completed_at=datetime.now(UTC))
            )


class WorkflowWorker(QueueWorker[WorkflowRunRow]):
    """Executes one workflow run at a time; a run whose worker died is executed again.

    What was committed before the worker died is not.
    """

    table = WorkflowRunRow

    async def close_exhausted(self, row: WorkflowRunRow) -> None:
        """Cancel the run in the store."""
        if row.planning_run is not None:
            suite = runs_suite(row.workflow_id)
            await in_thread(end_run, self.parts.store, suite, row.planning_run, None)

    async def execute(self, row: WorkflowRunRow, lease: RowLease) -> None:
        """Execute a run and store its steps and its output together."""
        async with self.parts.database.reading() as session:
            version = await version_of(session, row)
        run = await self._planned(row, lease, version)
        executing = asyncio.ensure_future(
            in_thread(execute_workflow, run, self.settings, lease.end_signals)
        )
        outcome: WorkflowOutcome | None = await lease.result_of(executing)
        if outcome is not None:
            await self._write(row, lease, outcome)

    async def _planned(
        self, row: WorkflowRunRow, lease: RowLease, version: WorkflowVersionRow
    ) -> StoredRun:
        """Return the run in the store: that of an earlier worker if its plan is whole."""
        store, suite = self.parts.store, runs_suite(row.workflow_id)
        if row.planning_run is not None:
            taken_up: StoredRun | None = await in_thread(take_up, store, suite, row.planning_run)
            if taken_up is not None:
                return taken_up
        payloads = self.parts.payloads
        definition = await payloads.get(version.definition, version.definition_ref)
        inputs = await payloads.get(row.inputs, row.inputs_ref)
        run = open_run(store, suite, new_engine_run())
        async with self.parts.database.transaction() as session:
            changed: Any = await session.execute(
                update(WorkflowRunRow).where(*lease.mine).values(planning_run=run.run_id)
            )
        if not changed.rowcount:
            raise LeaseEndedError("the run was taken over before it was planned")
        await in_thread(plan_workflow, run, row.workflow_id, definition, inputs)
        return run

    async def _write(self, row: WorkflowRunRow, lease: RowLease, outcome: WorkflowOutcome) -> None:
        """Write the steps and the end together; nothing if another worker has the row."""
        steps = [await self._step(row, step) for step in outcome.steps]
        output = await self.parts.payloads.put(outcome.output, row.project_id)
        status = LifecycleStatus.COMPLETED if outcome.error is None else LifecycleStatus.ERROR
        ended = {
            "status": status,
            "error": outcome.error,
            "output": output.inline,
            "output_ref": output.ref,
            "completed_at": datetime.now(UTC),
        }
        async with self.parts.database.transaction() as session:
            changed: Any = await session.execute(
                update(WorkflowRunRow).where(*lease.mine).values(**ended)
            )
            if changed.rowcount:
                session.add_all(steps)

    async def _step(self, row: WorkflowRunRow, step: Mapping[str, Any]) -> WorkflowStepRow:
        inputs = await self.parts.payloads.put(_handles(step["inputs"]), row.project_id)
        outputs = await self.parts.payloads.put(_handles(step["outputs"]), row.project_id)
        error = step["error"]
        return WorkflowStepRow(
            id=new_id(Kind.STEP),
            project_id=row.project_id,
            created_at=_time(step["started_us"]),
            run_id=row.id,
            block_id=step["block_id"],
            block_type=step["block_type"],
            round=step["round"],
            status=LifecycleStatus.COMPLETED if error is None else LifecycleStatus.ERROR,
            error=error,
            inputs=inputs.inline,
            inputs_ref=inputs.ref,
            outputs=outputs.inline,
            outputs_ref=outputs.ref,
            started_at=_time(step["started_us"]),
            completed_at=_time(step["ended_us"]),
        )


def _handles(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return values by handle as the wire has them; references to files stay files."""
    if values is None:
        return None
    return {handle: _handle(value) for handle, value in values.items()}


def _handle(value: Any) -> dict[str, Any]:
    is_file = isinstance(value, Mapping) and set(value) == {"id", "filename", "mime_type"}
    if is_file and str(value["id"]).startswith(f"{Kind.FILE}_"):
        return {"type": "file", "document": dict(value)}
    return {"type": "json", "data": value}


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
