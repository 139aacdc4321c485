"""The worker of workflow runs: executes them as runs of one item, and stores their steps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import update

from evalcore.service.database.tables import WorkflowRunRow, WorkflowStepRow, WorkflowVersionRow
from evalcore.service.execution.lease import LeaseEndedError, RowLease
from evalcore.service.execution.planned_runs import end_run, new_engine_run, take_up
from evalcore.service.execution.queue_worker import QueueWorker
from evalcore.service.execution.run_versions import version_of
from evalcore.service.execution.threads import in_thread
from evalcore.service.execution.workflow_execution import (
    WorkflowOutcome,
    execute_workflow,
    plan_workflow,
    runs_suite,
)
from evalcore.service.identifiers import Kind, new_id
from evalcore.service.wire.base import LifecycleStatus
from evalcore.storage.runs import StoredRun, open_run


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
