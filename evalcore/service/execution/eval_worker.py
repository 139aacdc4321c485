"""The worker of eval runs: takes them from the queue, executes them, writes their results.

The queue is the table of runs: a run belongs to the worker whose lease on it has not ended. A
worker that dies leaves its lease; another one goes on with the run in the store, so that nothing
that is committed is executed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import or_, select, update

from evalcore.checks.conditions.eval_assertion import EvalAssertion
from evalcore.errors import EvalError, StoreError
from evalcore.service.database.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    EvalRunRow,
    WorkflowVersionRow,
)
from evalcore.service.execution.engine_run import (
    FrozenEval,
    ItemResult,
    committed_results,
    execute_evals,
    in_thread,
    plan_evals,
)
from evalcore.service.fingerprints import result_fingerprints
from evalcore.service.identifiers import Kind, new_id
from evalcore.service.parts import Parts
from evalcore.service.wire.base import FINAL, LifecycleStatus
from evalcore.settings import Settings

_LOG: Final = logging.getLogger("evalcore.service")
_LOOK_S: Final = 0.25
_IDLE_S: Final = 2.0
_LEASE_S: Final = 15.0
_RETRY_S: Final = 5.0
_OPEN: Final = (LifecycleStatus.PENDING, LifecycleStatus.QUEUED, LifecycleStatus.RUNNING)


class EvalWorker:
    """Executes one run at a time until it is stopped."""

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._settings = settings
        self._name = new_id(Kind.TOKEN).removeprefix("tok_")
        self._woken = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look for runs."""
        self._task = asyncio.create_task(self._loop())

    def wake(self) -> None:
        """Look for runs now."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop between two items; what is left of the run is taken up by the next worker."""
        self._stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task

    async def _loop(self) -> None:
        while not self._stopping:
            self._woken.clear()
            try:
                row = await self._claim()
                if row is not None:
                    await self._execute(row)
                    continue
            except Exception:  # noqa: BLE001 - the database or the store is away
                _LOG.exception("the queue of eval runs cannot be read")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _IDLE_S)

    async def _claim(self) -> EvalRunRow | None:
        """Take the oldest run that nobody has; its children are queued then."""
        now = datetime.now(UTC)
        query = (
            select(EvalRunRow)
            .where(
                EvalRunRow.status.in_(_OPEN),
                or_(EvalRunRow.lease_until.is_(None), EvalRunRow.lease_until < now),
            )
            .order_by(EvalRunRow.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        async with self._parts.database.transaction() as session:
            row: EvalRunRow | None = await session.scalar(query)
            if row is None:
                return None
            row.worker, row.lease_until = self._name, now + timedelta(seconds=_LEASE_S)
            row.status = LifecycleStatus.RUNNING
            row.started_at = row.started_at or now
            await session.execute(
                update(EvalResultRow)
                .where(EvalResultRow.run_id == row.id, EvalResultRow.status.in_(_OPEN))
                .values(status=LifecycleStatus.QUEUED)
            )
        return row

    async def _execute(self, row: EvalRunRow) -> None:
        try:
            await _RunExecution(self._parts, self._settings, row, self._name, self._stops).run()
        except (StoreError, OSError) as error:
            _LOG.warning("run %s waits: %s", row.id, error)
            await self._release(row, _RETRY_S)
        except EvalError as error:
            await self._fail(row, {"code": type(error).__name__, "message": str(error)})
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one run only
            _LOG.exception("run %s failed", row.id)
            message = f"unexpected fault: {type(error).__name__}"
            await self._fail(row, {"code": "internal_error", "message": message})
        else:
            if self._stopping:
                await self._release(row, 0)

    def _stops(self) -> bool:
        return self._stopping

    async def _release(self, row: EvalRunRow, after_s: float) -> None:
        """Let any worker take the run, after some seconds."""
        until = datetime.now(UTC) + timedelta(seconds=after_s)
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(EvalRunRow.id == row.id, EvalRunRow.worker == self._name)
                .values(lease_until=until)
            )

    async def _fail(self, row: EvalRunRow, error: dict[str, str]) -> None:
        """End a run that cannot be executed, with its children that have no result."""
        now = datetime.now(UTC)
        ended = {"status": LifecycleStatus.ERROR, "error": error, "completed_at": now}
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(EvalRunRow.id == row.id, EvalRunRow.status.in_(_OPEN))
                .values(**ended)
            )
            await session.execute(
                update(EvalResultRow)
                .where(EvalResultRow.run_id == row.id, EvalResultRow.status.in_(_OPEN))
                .values(**ended)
            )


class _RunExecution:
    """One run from its claim to its end."""

    def __init__(
        self, parts: Parts, settings: Settings, row: EvalRunRow, worker: str, stops: Any
    ) -> None:
        self._parts, self._settings, self._row = parts, settings, row
        self._worker, self._stops = worker, stops
        self._cancelled = False
        self._children: dict[str, EvalResultRow] = {}
        self._revisions: dict[str, EvalRevisionRow] = {}
        self._definition: dict[str, Any] = {}
        self._done: set[int] = set()

    async def run(self) -> None:
        """Execute the run; raises what the store or the engine raises."""
        await self._read()
        engine_run = self._row.engine_run or await self._plan()
        await self._mark_running()
        executing = asyncio.ensure_future(
            in_thread(
                execute_evals, self._parts.store, engine_run, self._settings, self._is_stopped
            )
        )
        while not executing.done():
            await asyncio.wait({executing}, timeout=_LOOK_S)
            await self._keep_lease()
            await self._write_committed(engine_run)
        complete = executing.result()
        await self._write_committed(engine_run)
        if complete:
            await self._end()

    def _is_stopped(self) -> bool:
        return self._cancelled or bool(self._stops())

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
            version = await session.scalar(
                select(WorkflowVersionRow).where(
                    WorkflowVersionRow.workflow_id == row.workflow_id,
                    WorkflowVersionRow.version_id == row.version_id,
                )
            )
        if version is None:
            raise EvalError(f"workflow version '{row.version_id}' does not exist")
        self._definition = await self._parts.payloads.get(
            version.definition, version.definition_ref
        )

    async def _plan(self) -> str:
        evals = [await self._frozen(child) for child in self._children.values()]
        engine_run: str = await in_thread(
            plan_evals,
            self._parts.store,
            self._row.workflow_id,
            self._definition,
            evals,
        )
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalRunRow)
                .where(EvalRunRow.id == self._row.id)
                .values(engine_run=engine_run)
            )
        return engine_run

    async def _frozen(self, child: EvalResultRow) -> FrozenEval:
        revision = self._revisions[child.revision_id]
        inputs = await self._parts.payloads.get(revision.handle_inputs, revision.handle_inputs_ref)
        assertion = EvalAssertion.model_validate(revision.assertion)
        return FrozenEval(child.eval_id, revision.block_id, inputs, assertion)

    async def _mark_running(self) -> None:
        now = datetime.now(UTC)
        async with self._parts.database.transaction() as session:
            await session.execute(
                update(EvalResultRow)
                .where(EvalResultRow.run_id == self._row.id, EvalResultRow.status.in_(_OPEN))
                .values(status=LifecycleStatus.RUNNING, started_at=now)
            )

    async def _keep_lease(self) -> None:
        """Renew the lease; note whether the run was cancelled, or another worker has it."""
        until = datetime.now(UTC) + timedelta(seconds=_LEASE_S)
        async with self._parts.database.transaction() as session:
            row = await session.scalar(select(EvalRunRow).where(EvalRunRow.id == self._row.id))
            if row is None or row.status in FINAL or row.worker != self._worker:
                self._cancelled = True
            else:
                row.lease_until = until

    async def _write_committed(self, engine_run: str) -> None:
        shards = await asyncio.to_thread(
            lambda: [*committed_results(self._parts.store, engine_run, self._done)]
        )
        for shard, results in shards:
            await self._write(results)
            self._done.add(shard)

    async def _write(self, results: Sequence[ItemResult]) -> None:
        """Write results that are final; those of children that are final already stay."""
        rows = [await self._final_values(result) for result in results]
        async with self._parts.database.transaction() as session:
            for child, values in rows:
                changed = await session.execute(
                    update(EvalResultRow)
                    .where(EvalResultRow.id == child.id, EvalResultRow.status.in_(_OPEN))
                    .values(**values)
                )
                if changed.rowcount:  # type: ignore[attr-defined]  # of an UPDATE there is one
                    await self._point_to(session, child, values)

    async def _final_values(self, result: ItemResult) -> tuple[EvalResultRow, dict[str, Any]]:
        child = self._children[result.eval_id]
        revision = self._revisions[child.revision_id]
        assertion = result.assertion_result
        if assertion is None:
            assertion = _blocked_by_error(EvalAssertion.model_validate(revision.assertion), result)
        project, payloads = self._row.project_id, self._parts.payloads
        outputs = await payloads.put(result.handle_outputs, project)
        told = await payloads.put(assertion, project)
        status = LifecycleStatus.COMPLETED if result.error is None else LifecycleStatus.ERROR
        return child, {
            "status": status,
            "error": result.error,
            "verdict": assertion["outcome"],
            "handle_outputs": outputs.inline,
            "handle_outputs_ref": outputs.ref,
            "assertion_result": told.inline,
            "assertion_result_ref": told.ref,
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
                .where(EvalRunRow.id == self._row.id, EvalRunRow.status.in_(_OPEN))
                .values(status=LifecycleStatus.COMPLETED, completed_at=datetime.now(UTC))
            )


def _blocked_by_error(assertion: EvalAssertion, result: ItemResult) -> dict[str, Any]:
    """Return the assertion result of an eval whose block gave no output."""
    message = (result.error or {}).get("message", "")
    return {
        "assertion_id": assertion.id or "",
        "condition_kind": assertion.condition.kind,
        "outcome": "blocked",
        "actual_value": None,
        "expected_value": assertion.condition.expected_value,
        "failure": {
            "code": "block_execution_failed",
            "message": f"the block failed: {message}",
            "details": {"partial_path": None, "partial_value": None},
        },
    }
