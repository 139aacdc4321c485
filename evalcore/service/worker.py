"""Workers: they execute the runs of evals and of workflows that are not finished.

A worker tries each unfinished run: the engine's coordinator, which holds the run's lease in the
store, lets one process execute it. So a run whose process died is resumed like any other, and
nothing that is committed is executed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer_group

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import EvalError, StoreError
from evalcore.execution.stopper import Stopper
from evalcore.model.sighting import Sighting
from evalcore.model.suite import Suite
from evalcore.pipeline.executors import Runner
from evalcore.pipeline.lease import LeaseLostError, RunHeldError
from evalcore.service.context import Context
from evalcore.service.db import DatabaseOutageError
from evalcore.service.engine import (
    FrozenEval,
    ItemResult,
    WorkflowOutcome,
    attend,
    committed_results,
    end_run,
    eval_suite,
    execute,
    is_complete,
    is_free,
    is_planned,
    plan,
    runs_suite,
    workflow_outcome,
    workflow_suite,
)
from evalcore.service.models import FINAL, LifecycleStatus
from evalcore.service.runs import end_open
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
from evalcore.storage.runs import StoredRun, open_run
from evalcore.version import VERSION

LOG: Final = logging.getLogger("evalcore.service")
OPEN: Final = tuple(status for status in LifecycleStatus if status not in FINAL)
_IDLE_S: Final = 2.0
_LOOK_S: Final = 0.25
_RETRY_S: Final = 5.0
# What a service that ends waits for the items that run; they are cancelled then, and the next
# worker executes them again.
_DRAIN_S: Final = 15.0
_HAND_BACK_S: Final = _DRAIN_S + 5.0
_ROWS_AT_ONCE: Final = 200
_SHARDS_AT_ONCE: Final = 100

Row = TypeVar("Row", EvalRunRow, WorkflowRunRow)


class RunWorker(Generic[Row]):
    """Executes the unfinished runs of a table, so many at once, the oldest first."""

    table: ClassVar[Any]

    def __init__(
        self, context: Context, settings: Settings, at_once: int, runner: Runner | None = None
    ) -> None:
        self.context, self.settings, self.runner = context, settings, runner
        self._at_once = at_once
        self._woken = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.Task[None] | None = None
        self._executing: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._sightings: dict[str, Sighting[str]] = {}

    async def execute(self, row: Row, run: StoredRun) -> None:
        """Execute a run until it ends, or until it is told to stop."""
        raise NotImplementedError

    async def fail(self, session: AsyncSession, row: Row, error: dict[str, str]) -> None:
        """End a run that cannot be executed."""
        raise NotImplementedError

    def suite_name(self, workflow_id: str) -> str:
        """Return the name of the suite that the runs of a workflow belong to in the store."""
        raise NotImplementedError

    async def start(self) -> None:
        """Begin to look for runs."""
        self._loop = asyncio.create_task(self._look_for_runs())

    def wake(self) -> None:
        """Look for runs now."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop between two items; what is left of a run is executed by the next worker."""
        self._stopping = True
        self.wake()
        if self._loop is not None:
            await self._loop
        await asyncio.gather(*self._executing.values())

    async def _look_for_runs(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                await self._begin_runs()
            except (DatabaseOutageError, StoreError, OSError) as error:
                LOG.warning("%s wait: %s", self.table.__tablename__, error)
            except Exception:
                # A fault of ours must not end the worker.
                LOG.exception("%s wait", self.table.__tablename__)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _IDLE_S)

    async def _begin_runs(self) -> None:
        """Begin the runs that no process executes."""
        if len(self._executing) >= self._at_once:
            return
        table = self.table
        query = (
            select(table.id, table.workflow_id, table.engine_run)
            .where(table.unfinished)
            .order_by(table.number)
            .limit(_ROWS_AT_ONCE)
        )
        async with self.context.database.reading() as session:
            unfinished = (await session.execute(query)).all()
        if unfinished:
            await self.context.from_store(self.context.check_store)
        for row_id, workflow_id, engine_run in unfinished:
            if len(self._executing) >= self._at_once or self._stopping:
                return
            if row_id in self._executing or time.monotonic() < self._not_before.get(row_id, 0.0):
                continue
            run = open_run(self.context.store, self.suite_name(workflow_id), engine_run)
            sighting = self._sightings.setdefault(row_id, Sighting())
            if await self.context.from_store(is_free, run, sighting):
                self._executing[row_id] = asyncio.create_task(self._take(row_id, run))

    async def _take(self, row_id: str, run: StoredRun) -> None:
        """Execute a run that seems to be free, or end it in the store if it is final."""
        try:
            await self._execute(row_id, run)
        except (RunHeldError, LeaseLostError) as error:
            LOG.info("%s: %s", row_id, error)
        except (StoreError, DatabaseOutageError, OSError) as error:
            LOG.warning("%s waits: %s", row_id, error)
            self._not_before[row_id] = time.monotonic() + _RETRY_S
        except Exception:
            # A fault of ours ends one run and not the worker.
            LOG.exception("%s waits", row_id)
            self._not_before[row_id] = time.monotonic() + _RETRY_S
        else:
            self._not_before.pop(row_id, None)
            self._sightings.pop(row_id, None)
        finally:
            del self._executing[row_id]
            self.wake()

    async def _execute(self, row_id: str, run: StoredRun) -> None:
        row: Row = await self._read(row_id)
        if row.status not in FINAL:
            error = None
            try:
                await self.execute(row, run)
            except (RunHeldError, LeaseLostError, StoreError, DatabaseOutageError, OSError):
                raise
            except EvalError as refused:
                error = {"code": type(refused).__name__, "message": str(refused)}
            except Exception as fault:  # a fault of ours: the run ends in error and says so
                LOG.exception("%s failed", row_id)
                message = f"unexpected fault: {type(fault).__name__}"
                error = {"code": "internal_error", "message": message}
            if error is not None:
                async with self.context.database.transaction() as session:
                    row = await self._locked(session, row_id)
                    if row.status not in FINAL:
                        await self.fail(session, row, error)
            row = await self._read(row_id)
        if row.status in FINAL:
            await in_thread(end_run, run, self.runner)
            async with self.context.database.transaction() as session:
                (await self._locked(session, row_id)).unfinished = False

    async def _read(self, row_id: str) -> Any:
        async with self.context.database.reading() as session:
            return (await session.scalars(select(self.table).filter_by(id=row_id))).one()

    async def _locked(self, session: AsyncSession, row_id: str) -> Any:
        query = select(self.table).filter_by(id=row_id).with_for_update()
        return (await session.scalars(query)).one()

    @property
    def is_stopping(self) -> bool:
        """Whether the service is about to end."""
        return self._stopping

    async def watched(
        self,
        row: Row,
        executing: asyncio.Future[bool],
        stopper: Stopper,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Return what an execution in a thread returns; `look` is awaited from time to time.

        It is told to end when the run is final, and with the service. An outage of the database or
        the store meanwhile passes.
        """
        stopping_s: float | None = None
        try:
            while not executing.done():
                await asyncio.wait({executing}, timeout=_LOOK_S)
                with contextlib.suppress(DatabaseOutageError, StoreError):
                    if look is not None:
                        await look()
                    if not stopper.stopped and await self._is_final(row.id):
                        stopper.stop()
                if not self._stopping:
                    continue
                now_s = time.monotonic()
                stopping_s = stopping_s or now_s
                if not stopper.draining:
                    stopper.drain()
                if now_s > stopping_s + _DRAIN_S and not stopper.stopped:
                    stopper.stop()
                if now_s > stopping_s + _HAND_BACK_S:
                    return False  # the process ends, and the thread with it
        except BaseException:
            # Without the end of the thread nobody else could execute the run.
            stopper.stop()
            await asyncio.wait({executing})
            raise
        return executing.result()

    async def _is_final(self, row_id: str) -> bool:
        query = select(self.table.status).where(self.table.id == row_id)
        async with self.context.database.reading() as session:
            return await session.scalar(query) in FINAL

    async def plan_once(
        self, row: Row, run: StoredRun, suite: Callable[[AsyncSession, Any], Awaitable[Suite]]
    ) -> None:
        """Plan the run in the store, unless its whole plan is there. Raises `RunHeldError`."""
        if await in_thread(is_planned, run):
            return
        async with self.context.database.reading() as session:
            version = await session.scalar(
                select(WorkflowVersionRow).where(
                    WorkflowVersionRow.workflow_id == row.workflow_id,
                    WorkflowVersionRow.version_id == row.version_id,
                )
            )
            if version is None:
                raise EvalError(f"workflow version '{row.version_id}' does not exist")
            planned = await suite(session, version.definition)
        await in_thread(plan, run, planned, self.settings)


class WorkflowWorker(RunWorker[WorkflowRunRow]):
    """Executes runs of workflows, as runs of one item, and stores their steps."""

    table = WorkflowRunRow

    def suite_name(self, workflow_id: str) -> str:
        """Return the name of the suite that the runs of a workflow belong to in the store."""
        return runs_suite(workflow_id)

    async def fail(self, _: AsyncSession, row: WorkflowRunRow, error: dict[str, str]) -> None:
        """End a run that cannot be executed."""
        row.status, row.error = LifecycleStatus.ERROR, error
        row.completed_at = datetime.now(UTC)

    async def execute(self, row: WorkflowRunRow, run: StoredRun) -> None:
        """Execute a run and store its steps and its output together."""

        async def suite(_: AsyncSession, definition: Mapping[str, Any]) -> Suite:
            return workflow_suite(row.workflow_id, definition, row.inputs)

        await self.plan_once(row, run, suite)
        async with self.context.database.transaction() as session:
            begun: WorkflowRunRow = await self._locked(session, row.id)
            begun.status = LifecycleStatus.RUNNING
            begun.started_at = begun.started_at or datetime.now(UTC)
        stopper = Stopper()
        executing = asyncio.ensure_future(in_thread(execute, run, self.settings, stopper))
        if await self.watched(row, executing, stopper):
            await self._write(row, await in_thread(workflow_outcome, run))
        elif not self.is_stopping:
            raise EvalError("the run was cancelled in the store")

    async def _write(self, row: WorkflowRunRow, outcome: WorkflowOutcome) -> None:
        """Write the steps and the end together, once."""
        async with self.context.database.transaction() as session:
            ended: WorkflowRunRow = await self._locked(session, row.id)
            if ended.status in FINAL:
                return
            is_error = outcome.error is not None
            ended.status = LifecycleStatus.ERROR if is_error else LifecycleStatus.COMPLETED
            ended.error, ended.output = outcome.error, outcome.output
            ended.completed_at = datetime.now(UTC)
            session.add_all(_step(row.id, step) for step in outcome.steps)


def _step(run_id: str, step: Mapping[str, Any]) -> WorkflowStepRow:
    error = step["error"]
    return WorkflowStepRow(
        id=new_id(Kind.STEP),
        created_at=_time(step["started_us"]),
        run_id=run_id,
        block_id=step["block_id"],
        block_type=step["block_type"],
        round=step["round"],
        status=LifecycleStatus.COMPLETED if error is None else LifecycleStatus.ERROR,
        error=error,
        inputs=_handles(step["inputs"]),
        outputs=_handles(step["outputs"]),
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


class EvalWorker(RunWorker[EvalRunRow]):
    """Executes runs of evals, here or by the runner's workers, and writes their results."""

    table = EvalRunRow

    def suite_name(self, workflow_id: str) -> str:
        """Return the name of the suite that the runs of a workflow's evals belong to."""
        return workflow_id

    async def fail(self, session: AsyncSession, row: EvalRunRow, error: dict[str, str]) -> None:
        """End a run that cannot be executed, with its children that are not final."""
        await end_open(session, self.context, row, LifecycleStatus.ERROR, error)

    async def execute(self, row: EvalRunRow, run: StoredRun) -> None:
        """Execute a run; what is committed of it is not executed again."""
        await self.plan_once(row, run, lambda *given: _planned_suite(row, *given))
        await self.mark(row.id, LifecycleStatus.QUEUED)
        results = _Results(self.context, row, run)
        await results.read()
        stopper, began = Stopper(), threading.Event()
        is_marked = False

        async def look() -> None:
            nonlocal is_marked
            if began.is_set() and not is_marked:
                await self.mark(row.id, LifecycleStatus.RUNNING)
                is_marked = True
            await results.write_committed()

        if self.runner is None:
            began.set()
            await look()
        executing = asyncio.ensure_future(in_thread(self._run_to_end, run, stopper, began))
        try:
            complete = await self.watched(row, executing, stopper, look)
        except EvalError:
            # What was committed until then is a result.
            with contextlib.suppress(EvalError):
                await look()
            raise
        await look()
        if not complete and self.is_stopping:
            await self.mark(row.id, LifecycleStatus.QUEUED)
            return
        async with self.context.database.transaction() as session:
            ended = await self._locked(session, row.id)
            if ended.status in FINAL:
                return
            if complete:
                ended.status, ended.completed_at = LifecycleStatus.COMPLETED, datetime.now(UTC)
            else:  # in the store, by `evalcore runs cancel`
                await end_open(session, self.context, ended, LifecycleStatus.CANCELLED)

    def _run_to_end(self, run: StoredRun, stopper: Stopper, began: threading.Event) -> bool:
        """Execute the run by the configured runner, without one in this process."""
        if self.runner is not None:
            reason = attend(run, self.settings, stopper, self.runner, began.set)
            if reason is None:
                if not is_complete(run):
                    return False
                began.set()
                return True
            LOG.warning("run %s goes on in the service's own process: %s", run.run_id, reason)
            began.set()
        return execute(run, self.settings, stopper)

    async def mark(self, run_id: str, status: LifecycleStatus) -> None:
        """Say of the run and of what is left of it that it waits, or that it is executed."""
        now = datetime.now(UTC)
        is_running = status == LifecycleStatus.RUNNING
        runs, results = EvalRunRow, EvalResultRow
        run: dict[str, Any] = {"status": status}
        child: dict[str, Any] = {"status": status}
        if is_running:
            run["started_at"] = func.coalesce(runs.started_at, now)
            child["started_at"] = now
        async with self.context.database.transaction() as session:
            await session.execute(
                update(runs).where(runs.id == run_id, runs.status.in_(OPEN)).values(**run)
            )
            await session.execute(
                update(results)
                .where(results.run_id == run_id, results.status.in_(OPEN))
                .values(**child)
            )


async def _planned_suite(
    row: EvalRunRow, session: AsyncSession, definition: Mapping[str, Any]
) -> Suite:
    """Return the suite of a run's children that are not final."""
    frozen = await session.scalars(
        select(EvalRevisionRow)
        .join(EvalResultRow, EvalResultRow.revision_id == EvalRevisionRow.id)
        .where(EvalResultRow.run_id == row.id, EvalResultRow.status.in_(OPEN))
        .order_by(EvalResultRow.number)
        .options(undefer_group("values"))
    )
    evals = [
        FrozenEval(
            revision.eval_id,
            revision.block_id,
            revision.handle_inputs,
            EvalAssertion.model_validate(revision.assertion),
        )
        for revision in frozen
    ]
    suite: Suite = await in_thread(eval_suite, row.workflow_id, definition, evals)
    return suite


class _Results:
    """The results of one run: what is committed in the store is written to the database."""

    def __init__(self, context: Context, row: EvalRunRow, run: StoredRun) -> None:
        self._context, self._row, self._run = context, row, run
        self._children: dict[str, Any] = {}
        self._done: set[int] = set()

    async def read(self) -> None:
        """Read which children there are."""
        results = EvalResultRow
        query = select(results.id, results.eval_id, results.fingerprints).where(
            results.run_id == self._row.id
        )
        async with self._context.database.reading() as session:
            self._children = {child.eval_id: child for child in await session.execute(query)}

    async def write_committed(self) -> None:
        """Write the results that are committed and not written yet."""
        shards = await asyncio.to_thread(lambda: [*committed_results(self._run, self._done)])
        for start in range(0, len(shards), _SHARDS_AT_ONCE):
            chunk = shards[start : start + _SHARDS_AT_ONCE]
            await self._write([result for _, results in chunk for result in results])
            self._done.update(shard for shard, _ in chunk)

    async def _write(self, results: Sequence[ItemResult]) -> None:
        """Write results that are final; those of children that are final already stay."""
        written: list[dict[str, Any]] = []
        async with self._context.database.transaction() as session:
            # In one order, so that two runs of the same evals cannot wait for each other.
            for result in sorted(results, key=lambda each: each.eval_id):
                child = self._children[result.eval_id]
                values = _final_values(result, child.fingerprints)
                changed: Any = await session.execute(
                    update(EvalResultRow)
                    .where(EvalResultRow.id == child.id, EvalResultRow.status.in_(OPEN))
                    .values(**values)
                )
                if changed.rowcount:
                    written.append(values)
                    latest = {"latest_result_id": child.id}
                    if values["verdict"] == "passed":
                        latest["latest_passing_id"] = child.id
                    elif values["verdict"] == "failed":
                        latest["latest_failing_id"] = child.id
                    await session.execute(
                        update(EvalRow).where(EvalRow.id == child.eval_id).values(**latest)
                    )
        for values in written:
            self._context.metrics.count_result(values["status"], values["verdict"])


def _final_values(result: ItemResult, fingerprints: Mapping[str, str]) -> dict[str, Any]:
    # An execution that failed has no verdict: its assertion was not evaluated.
    assertion = None if result.error is not None else result.assertion_result
    return {
        "status": LifecycleStatus.COMPLETED if result.error is None else LifecycleStatus.ERROR,
        "error": result.error,
        "verdict": None if assertion is None else assertion["outcome"],
        "handle_outputs": result.handle_outputs,
        "assertion_result": assertion,
        "started_at": result.started_at,
        "completed_at": result.completed_at,
        "fingerprints": {**fingerprints, "engine": VERSION},
    }


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
