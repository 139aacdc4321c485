"""`/v1/workflows/evals`: saved evals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from evalcore.service import evals
from evalcore.service.errors import REFUSALS
from evalcore.service.models import CreateEval, Page, UpdateEval, WorkflowEval
from evalcore.service.requests import (
    CurrentCaller,
    CurrentParts,
    RequestedPage,
    StrictRoute,
)

router = APIRouter(
    prefix="/v1/workflows/evals", tags=["evals"], route_class=StrictRoute, responses=REFUSALS
)


@router.post("", status_code=201)
async def create(body: CreateEval, parts: CurrentParts, caller: CurrentCaller) -> WorkflowEval:
    """Save an eval: a block, its frozen inputs, one assertion about its output."""
    return await evals.create_eval(parts, caller, body)


@router.get("")
async def list_all(
    parts: CurrentParts,
    caller: CurrentCaller,
    page: RequestedPage,
    workflow_id: Annotated[str, Query(description="Whose evals.")],
    target_block_id: Annotated[str | None, Query(description="Those of one block only.")] = None,
) -> Page[WorkflowEval]:
    """List the saved evals of a workflow, the newest first."""
    return await evals.list_evals(
        parts, caller, page, workflow_id=workflow_id, block_id=target_block_id
    )


@router.get("/{eval_id}")
async def get(eval_id: str, parts: CurrentParts, caller: CurrentCaller) -> WorkflowEval:
    """Return a saved eval, with drift and freshness as of now."""
    return await evals.get_eval(parts, caller, eval_id)


@router.patch("/{eval_id}")
async def update(
    eval_id: str, body: UpdateEval, parts: CurrentParts, caller: CurrentCaller
) -> WorkflowEval:
    """Change an eval: omitted fields stay, a given assertion replaces the whole."""
    return await evals.update_eval(parts, caller, eval_id, body)


@router.delete("/{eval_id}", status_code=204)
async def delete(eval_id: str, parts: CurrentParts, caller: CurrentCaller) -> None:
    """Delete an eval; its results stay."""
    await evals.delete_eval(parts, caller, eval_id)
