"""`/v1/workflows/evals/runs` and `…/results`: runs of saved evals."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query
from pydantic import BeforeValidator

from evalcore.service import results, runs
from evalcore.service.errors import REFUSALS, mistake
from evalcore.service.models import (
    CreateEvalRun,
    LifecycleStatus,
    Page,
    WorkflowEvalResult,
    WorkflowEvalRun,
)
from evalcore.service.requests import (
    CurrentCaller,
    CurrentParts,
    RequestedPage,
    RunFilter,
    StrictRoute,
)
from evalcore.service.runs import RunRequest

router = APIRouter(
    prefix="/v1/workflows/evals", tags=["eval runs"], route_class=StrictRoute, responses=REFUSALS
)

TRIGGER_HEADER = "Evalcore-Trigger"
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _written_as_date(text: Any) -> Any:
    if isinstance(text, str) and text.lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("expected a date and time of ISO 8601, got a number")
    return text


def _end_of_day(text: Any) -> Any:
    is_day = isinstance(text, str) and _DAY.fullmatch(text)
    return f"{text}T23:59:59.999999Z" if is_day else text


Moment = Annotated[datetime, BeforeValidator(_written_as_date)]
LastMoment = Annotated[Moment, BeforeValidator(_end_of_day)]


async def _filter(
    workflow_id: Annotated[str | None, Query(description="Of this workflow.")] = None,
    eval_id: Annotated[str | None, Query(description="Of this eval.")] = None,
    target_block_id: Annotated[str | None, Query(description="Of this block.")] = None,
    status: Annotated[list[LifecycleStatus] | None, Query(description="One of these.")] = None,
    exclude_status: Annotated[
        list[LifecycleStatus] | None, Query(description="None of these.")
    ] = None,
    trigger_type: Annotated[Literal["api", "mcp", "schedule"] | None, Query()] = None,
    from_date: Annotated[Moment | None, Query(description="Created then or later.")] = None,
    to_date: Annotated[
        LastMoment | None, Query(description="Created then or before; a day counts as a whole.")
    ] = None,
) -> RunFilter:
    return RunFilter(
        workflow_id=workflow_id,
        eval_id=eval_id,
        target_block_id=target_block_id,
        status=status,
        exclude_status=exclude_status,
        trigger_type=trigger_type,
        from_date=_utc(from_date, "from_date"),
        to_date=_utc(to_date, "to_date"),
    )


def _utc(moment: datetime | None, name: str) -> datetime | None:
    if moment is None:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise mistake(["query", name], "the date is out of range in UTC") from None


RequestedFilter = Annotated[RunFilter, Depends(_filter)]


@router.post("/runs", status_code=202)
async def create_run(
    body: CreateEvalRun,
    parts: CurrentParts,
    caller: CurrentCaller,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=255,
            description="A name for the request: sent again, it gives the same run.",
        ),
    ] = None,
    trigger: Annotated[
        Literal["api", "mcp", "schedule"],
        Header(alias=TRIGGER_HEADER, description="What starts the run."),
    ] = "api",
) -> WorkflowEvalRun:
    """Run the saved evals in scope. The same `Idempotency-Key` gives the same run."""
    request = RunRequest(body, trigger, idempotency_key)
    return await runs.create_eval_run(parts, caller, request)


@router.get("/runs")
async def list_runs(
    parts: CurrentParts, caller: CurrentCaller, page: RequestedPage, run_filter: RequestedFilter
) -> Page[WorkflowEvalRun]:
    """List runs, the newest first."""
    return await runs.list_eval_runs(parts, caller, page, run_filter)


@router.get("/runs/{run_id}")
async def get_run(run_id: str, parts: CurrentParts, caller: CurrentCaller) -> WorkflowEvalRun:
    """Return a run with its counts."""
    return await runs.get_eval_run(parts, caller, run_id)


@router.post("/runs/{run_id}/cancel")
async def cancel_run(run_id: str, parts: CurrentParts, caller: CurrentCaller) -> WorkflowEvalRun:
    """Cancel a run; results that are completed stay."""
    return await runs.cancel_eval_run(parts, caller, run_id)


@router.get("/results")
async def list_results(
    parts: CurrentParts,
    caller: CurrentCaller,
    page: RequestedPage,
    run_filter: RequestedFilter,
    run_id: Annotated[str | None, Query(description="Of this run.")] = None,
) -> Page[WorkflowEvalResult]:
    """List results, the newest first."""
    return await results.list_results(parts, caller, page, run_id, run_filter)


@router.get("/results/{result_id}")
async def get_result(
    result_id: str, parts: CurrentParts, caller: CurrentCaller
) -> WorkflowEvalResult:
    """Return a result."""
    return await results.get_result(parts, caller, result_id)
