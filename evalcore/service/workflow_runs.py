"""Runs of whole workflows, and the steps that they recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import TypeAdapter

from evalcore.checks.conditions import Handle
from evalcore.service.models import (
    LifecycleStatus,
    Page,
    StartWorkflowRun,
    WorkflowRun,
    WorkflowStep,
)
from evalcore.service.requests import CurrentContext, PageQuery, find_row, read_page
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import Kind, WorkflowRunRow, WorkflowStepRow, new_engine_run, new_id
from evalcore.service.workflows import find_workflow

HANDLES: Final[TypeAdapter[dict[str, Any] | None]] = TypeAdapter(dict[str, Handle] | None)

router = routes_of("/v1/workflows", "workflow runs")


@router.post("/{workflow_id}/runs", status_code=202)
async def start(workflow_id: str, body: StartWorkflowRun, context: CurrentContext) -> WorkflowRun:
    """Run the workflow's draft; its steps can be saved as evals."""
    now = datetime.now(UTC)
    async with context.database.transaction() as session:
        workflow = await find_workflow(session, workflow_id)
        row = WorkflowRunRow(
            id=new_id(Kind.WORKFLOW_RUN),
            created_at=now,
            engine_run=new_engine_run(now),
            workflow_id=workflow_id,
            version_id=workflow.draft_id,
            inputs=body.inputs,
            status=LifecycleStatus.PENDING,
        )
        session.add(row)
    context.wake()
    return _wire(row)


@router.get("/runs/{run_id}")
async def get(run_id: str, context: CurrentContext) -> WorkflowRun:
    """Return a workflow run."""
    async with context.database.reading() as session:
        return _wire(await find_row(session, WorkflowRunRow, run_id, "workflow run"))


@router.get("/runs/{run_id}/steps")
async def list_steps(
    run_id: str, query: Annotated[PageQuery, Query()], context: CurrentContext
) -> Page[WorkflowStep]:
    """List the steps of a workflow run: one for each time that a block ran."""
    async with context.database.reading() as session:
        await find_row(session, WorkflowRunRow, run_id, "workflow run")
        page = await read_page(session, WorkflowStepRow, query, [WorkflowStepRow.run_id == run_id])
    return Page(data=[*map(_step, page.rows)], list_metadata=page.metadata)


def _wire(row: WorkflowRunRow) -> WorkflowRun:
    return WorkflowRun(
        id=row.id,
        workflow_id=row.workflow_id,
        workflow_version_id=row.version_id,
        lifecycle=row.lifecycle,
        timing=row.timing,
        inputs=row.inputs,
        output=row.output,
    )


def _step(row: WorkflowStepRow) -> WorkflowStep:
    return WorkflowStep(
        id=row.id,
        block_id=row.block_id,
        round=row.round,
        lifecycle=row.lifecycle,
        timing=row.timing,
        handle_inputs=HANDLES.validate_python(row.inputs),
        handle_outputs=HANDLES.validate_python(row.outputs),
    )
