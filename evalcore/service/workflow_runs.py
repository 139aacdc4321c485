"""Runs of whole workflows, and the steps that they recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import Handle
from evalcore.service.auth import Caller
from evalcore.service.context import Parts, ReadValue, damage_of
from evalcore.service.db import read_owned
from evalcore.service.errors import not_found
from evalcore.service.models import (
    LifecycleStatus,
    Page,
    StartWorkflowRun,
    WorkflowRun,
    WorkflowStep,
)
from evalcore.service.requests import PageRequest, read_page, read_values
from evalcore.service.runs import lifecycle_of, timing_of
from evalcore.service.tables import Kind, WorkflowRunRow, WorkflowStepRow, new_id
from evalcore.service.workflows import find_workflow

_HANDLES: TypeAdapter[dict[str, Any] | None] = TypeAdapter(dict[str, Handle] | None)


async def start_workflow_run(
    parts: Parts, caller: Caller, workflow_id: str, body: StartWorkflowRun
) -> WorkflowRun:
    """Queue a run of the workflow's draft. Raises `ServiceError` 404."""
    inputs = await parts.payloads.put(body.inputs, caller.project_id)
    async with parts.database.transaction() as session:
        workflow = await find_workflow(session, caller, workflow_id)
        row = WorkflowRunRow(
            id=new_id(Kind.WORKFLOW_RUN),
            project_id=caller.project_id,
            created_at=datetime.now(UTC),
            workflow_id=workflow_id,
            version_id=workflow.draft_id,
            inputs=inputs.inline,
            inputs_ref=inputs.ref,
            status=LifecycleStatus.PENDING,
        )
        session.add(row)
    parts.wake()
    return await _wire(parts, row)


async def get_workflow_run(parts: Parts, caller: Caller, run_id: str) -> WorkflowRun:
    """Return a workflow run. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        row = await find_workflow_run(session, caller, run_id)
    return await _wire(parts, row)


async def list_steps(
    parts: Parts, caller: Caller, run_id: str, page: PageRequest
) -> Page[WorkflowStep]:
    """Return a page of the steps of a workflow run, the latest first. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        await find_workflow_run(session, caller, run_id)
        rows = await read_page(session, WorkflowStepRow, page, [WorkflowStepRow.run_id == run_id])
    rows, values = await read_values(
        parts.payloads,
        rows,
        lambda row: [(row.inputs, row.inputs_ref), (row.outputs, row.outputs_ref)],
    )
    data = [_step_wire(row, *read) for row, read in zip(rows.rows, values, strict=True)]
    return Page(data=data, list_metadata=rows.metadata)


async def find_workflow_run(session: AsyncSession, caller: Caller, run_id: str) -> WorkflowRunRow:
    """Return a run of the caller's project. Raises `ServiceError` 404."""
    row = await read_owned(session, WorkflowRunRow, run_id, caller.project_id)
    if row is None:
        raise not_found("workflow run", run_id)
    return row


async def _wire(parts: Parts, row: WorkflowRunRow) -> WorkflowRun:
    inputs, output = await parts.payloads.read(
        [(row.inputs, row.inputs_ref), (row.output, row.output_ref)]
    )
    return WorkflowRun(
        id=row.id,
        workflow_id=row.workflow_id,
        workflow_version_id=row.version_id,
        lifecycle=lifecycle_of(row.status, row.error),
        timing=timing_of(row),
        inputs=inputs.value,
        output=output.value,
        damage=damage_of({"inputs": inputs, "output": output}),
    )


def _step_wire(row: WorkflowStepRow, inputs: ReadValue, outputs: ReadValue) -> WorkflowStep:
    return WorkflowStep(
        id=row.id,
        block_id=row.block_id,
        round=row.round,
        lifecycle=lifecycle_of(row.status, row.error),
        timing=timing_of(row),
        handle_inputs=_HANDLES.validate_python(inputs.value),
        handle_outputs=_HANDLES.validate_python(outputs.value),
        damage=damage_of({"handle_inputs": inputs, "handle_outputs": outputs}),
    )
