"""`/v1/workflows/…/runs`: runs of whole workflows."""

from __future__ import annotations

from fastapi import APIRouter

from evalcore.service import workflow_runs
from evalcore.service.errors import REFUSALS
from evalcore.service.models import Page, StartWorkflowRun, WorkflowRun, WorkflowStep
from evalcore.service.requests import (
    CurrentCaller,
    CurrentParts,
    RequestedPage,
    StrictRoute,
)

router = APIRouter(
    prefix="/v1/workflows", tags=["workflow runs"], route_class=StrictRoute, responses=REFUSALS
)


@router.post("/{workflow_id}/runs", status_code=202)
async def start(
    workflow_id: str, body: StartWorkflowRun, parts: CurrentParts, caller: CurrentCaller
) -> WorkflowRun:
    """Run the workflow's draft; its steps can be saved as evals."""
    return await workflow_runs.start_workflow_run(parts, caller, workflow_id, body)


@router.get("/runs/{run_id}")
async def get(run_id: str, parts: CurrentParts, caller: CurrentCaller) -> WorkflowRun:
    """Return a workflow run."""
    return await workflow_runs.get_workflow_run(parts, caller, run_id)


@router.get("/runs/{run_id}/steps")
async def list_steps(
    run_id: str, parts: CurrentParts, caller: CurrentCaller, page: RequestedPage
) -> Page[WorkflowStep]:
    """List the steps of a workflow run: one for each time that a block ran."""
    return await workflow_runs.list_steps(parts, caller, run_id, page)
