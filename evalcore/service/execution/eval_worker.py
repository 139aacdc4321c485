"""The worker of eval runs: takes them from the queue, executes them, writes their results.

A worker that takes up another one's run goes on with the run in the store, so that nothing that is
committed is executed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import EvalError
from evalcore.pipeline.execute import ALONE_AFTER
from evalcore.pipeline.executors import Runner
from evalcore.pipeline.lease import read_lease
from evalcore.service.database.tables import EvalResultRow, EvalRevisionRow, EvalRow, EvalRunRow
from evalcore.service.execution.engine_run import (
    FrozenEval,
    ItemResult,
    committed_results,
    execute_evals,
    plan_evals,
    planned_run,
)
from evalcore.service.execution.lease import LeaseEndedError, RowLease
from evalcore.service.execution.planned_runs import end_run, end_unused, new_engine_run, take_up
from evalcore.service.execution.queue_worker import LOG, MOST_ATTEMPTS, OPEN, QueueWorker
from evalcore.service.execution.run_versions import version_of
from evalcore.service.execution.submitted_run import attend_submitted, is_complete
from evalcore.service.execution.threads import in_thread
from evalcore.service.fingerprints import result_fingerprints
from evalcore.service.latest_results import point_to_ending
from evalcore.service.parts import Parts
from evalcore.service.payloads import DamagedPayloadError
from evalcore.service.wire.base import LifecycleStatus
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun

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
