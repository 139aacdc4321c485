"""The results of eval runs: immutable once they are final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer_group

from evalcore.service.models import (
    AssertionResultBody,
    Page,
    VerdictSummary,
    WorkflowEvalResult,
)
from evalcore.service.requests import CurrentContext, RunQuery, find_row, read_page
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import EvalResultRow, EvalRevisionRow, EvalRunRow
from evalcore.service.workflow_runs import HANDLES

router = routes_of("/v1/workflows/evals", "eval runs")


class ResultQuery(RunQuery):
    """Which results."""

    run_id: Annotated[str | None, Field(description="Of this run.")] = None


@router.get("/results")
async def list_results(
    query: Annotated[ResultQuery, Query()], context: CurrentContext
) -> Page[WorkflowEvalResult]:
    """List results, the newest first."""
    scope, where = query.lasting_conditions(EvalResultRow), query.status_conditions(EvalResultRow)
    async with context.database.reading() as session:
        if query.run_id is not None:
            await find_row(session, EvalRunRow, query.run_id, "eval run")
            scope.append(EvalResultRow.run_id == query.run_id)
        page = await read_page(session, EvalResultRow, query, scope, where, values=True)
        data = await _wires(session, page.rows)
    return Page(data=data, list_metadata=page.metadata)


@router.get("/results/{result_id}")
async def get_result(result_id: str, context: CurrentContext) -> WorkflowEvalResult:
    """Return a result."""
    async with context.database.reading() as session:
        row = await find_row(session, EvalResultRow, result_id, "result", values=True)
        return (await _wires(session, [row]))[0]


async def _wires(session: AsyncSession, rows: Sequence[EvalResultRow]) -> list[WorkflowEvalResult]:
    """Return results as the wire shows them, with the inputs that their evals had then."""
    named = {row.revision_id for row in rows}
    revisions = await session.scalars(
        select(EvalRevisionRow)
        .where(EvalRevisionRow.id.in_(named))
        .options(undefer_group("values"))
    )
    inputs = {revision.id: revision.handle_inputs for revision in revisions}
    return [
        WorkflowEvalResult(
            id=row.id,
            workflow_eval_run_id=row.run_id,
            eval_id=row.eval_id,
            workflow_id=row.workflow_id,
            block_id=row.block_id,
            block_type=row.block_type,
            lifecycle=row.lifecycle,
            timing=row.timing,
            handle_inputs=HANDLES.validate_python(inputs[row.revision_id]) or {},
            handle_outputs=HANDLES.validate_python(row.handle_outputs),
            assertion_result=None
            if row.assertion_result is None
            else AssertionResultBody.model_validate(row.assertion_result),
            verdict=row.verdict,
            verdict_summary=_summary(row),
        )
        for row in rows
    ]


def _summary(row: EvalResultRow) -> VerdictSummary | None:
    if row.verdict is None or row.assertion_result is None:
        return None
    failed = row.verdict == "failed"
    return VerdictSummary(
        passed=row.verdict == "passed",
        assertions_passed=int(row.verdict == "passed"),
        assertions_failed=int(failed),
        blocked_assertions=int(row.verdict == "blocked"),
        failed_assertion_ids=[row.assertion_result["assertion_id"]] if failed else [],
    )
