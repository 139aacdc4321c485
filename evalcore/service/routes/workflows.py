"""`/v1/workflows`: register, edit, publish, list, get, delete."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from evalcore.service import workflows
from evalcore.service.errors import REFUSALS
from evalcore.service.export import chunks, export_workflow
from evalcore.service.models import (
    CreateWorkflow,
    ExportedWorkflow,
    Page,
    RegisteredWorkflow,
    UpdateDraft,
)
from evalcore.service.requests import (
    CurrentCaller,
    CurrentParts,
    RequestedPage,
    WorkflowsRoute,
)

router = APIRouter(
    prefix="/v1/workflows", tags=["workflows"], route_class=WorkflowsRoute, responses=REFUSALS
)


@router.post("", status_code=201)
async def register(
    body: CreateWorkflow, parts: CurrentParts, caller: CurrentCaller
) -> RegisteredWorkflow:
    """Register a workflow: a workflow file as a mapping, or its YAML text."""
    return await workflows.create_workflow(parts, caller, body)


@router.get("")
async def list_all(
    parts: CurrentParts, caller: CurrentCaller, page: RequestedPage
) -> Page[RegisteredWorkflow]:
    """List workflows at their drafts, the newest first."""
    return await workflows.list_workflows(parts, caller, page)


@router.get("/{workflow_id}")
async def get(
    workflow_id: str, parts: CurrentParts, caller: CurrentCaller, version_id: str | None = None
) -> RegisteredWorkflow:
    """Return a workflow at its draft, or at the version `version_id`."""
    return await workflows.get_workflow(parts, caller, workflow_id, version_id)


@router.get("/{workflow_id}/export", response_model=ExportedWorkflow)
async def export(workflow_id: str, parts: CurrentParts, caller: CurrentCaller) -> StreamingResponse:
    """Return the draft and all saved evals with their frozen inputs, oldest first."""
    file = await export_workflow(parts, caller, workflow_id)
    return StreamingResponse(chunks(file), media_type="application/json")


@router.put("/{workflow_id}/draft")
async def update_draft(
    workflow_id: str, body: UpdateDraft, parts: CurrentParts, caller: CurrentCaller
) -> RegisteredWorkflow:
    """Replace the draft."""
    return await workflows.update_draft(parts, caller, workflow_id, body.definition)


@router.post("/{workflow_id}/publish")
async def publish(
    workflow_id: str, parts: CurrentParts, caller: CurrentCaller
) -> RegisteredWorkflow:
    """Publish the draft as the next version; it can be edited on."""
    return await workflows.publish(parts, caller, workflow_id)


@router.delete("/{workflow_id}", status_code=204)
async def delete(workflow_id: str, parts: CurrentParts, caller: CurrentCaller) -> None:
    """Delete a workflow; its runs and results stay."""
    await workflows.delete_workflow(parts, caller, workflow_id)
