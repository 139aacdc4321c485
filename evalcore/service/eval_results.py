"""The results of eval runs: immutable once they are final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.access.tokens import Caller
from evalcore.service.database.rows import read_by_ids, read_owned
from evalcore.service.database.tables import EvalResultRow, EvalRevisionRow
from evalcore.service.eval_runs import find_eval_run
from evalcore.service.evals import HANDLES
from evalcore.service.failure import not_found
from evalcore.service.filters import RunFilter
from evalcore.service.pages import PageRequest, read_page
from evalcore.service.parts import Parts
from evalcore.service.timing import lifecycle_of, timing_of
from evalcore.service.wire.base import Page
from evalcore.service.wire.eval_runs import VerdictSummary, WorkflowEvalResult
from evalcore.service.wire.evals import AssertionResultBody

# They may be large, and a result shows nothing of them.
_NOT_OF_RESULTS: Final = ("source", "assertion")


async def list_results(
    parts: Parts, caller: Caller, page: PageRequest, run_id: str | None, run_filter: RunFilter
) -> Page[WorkflowEvalResult]:
    """Return a page of results, the newest first. Raises `ServiceError` 404 for the run."""
    scope: list[ColumnElement[bool]] = [EvalResultRow.project_id == caller.project_id]
    scope += run_filter.lasting_conditions(EvalResultRow)
    where = run_filter.status_conditions(EvalResultRow)
    async with parts.database.reading() as session:
        if run_id is not None:
            await find_eval_run(session, caller, run_id)
            scope.append(EvalResultRow.run_id == run_id)
        rows = await read_page(session, EvalResultRow, page, scope, where)
        revisions = await _revisions(session, caller, rows.rows)
    return Page(data=await _wires(parts, rows.rows, revisions), list_metadata=rows.metadata)


async def get_result(parts: Parts, caller: Caller, result_id: str) -> WorkflowEvalResult:
    """Return a result. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        row = await read_owned(session, EvalResultRow, result_id, caller.project_id)
        if row is None:
            raise not_found("result", result_id)
        revisions = await _revisions(session, caller, [row])
    return (await _wires(parts, [row], revisions))[0]


async def _revisions(
    session: AsyncSession, caller: Caller, rows: Sequence[EvalResultRow]
) -> dict[str, EvalRevisionRow]:
    """Return what the evals of results said then, by their ids."""
    return await read_by_ids(
        session,
        EvalRevisionRow,
        [row.revision_id for row in rows],
        caller.project_id,
        _NOT_OF_RESULTS,
    )


async def _wires(
    parts: Parts, rows: Sequence[EvalResultRow], revisions: Mapping[str, EvalRevisionRow]
) -> list[WorkflowEvalResult]:
    written = []
    for row in rows:
        revision = revisions[row.revision_id]
        written += [
            (revision.handle_inputs, revision.handle_inputs_ref),
            (row.handle_outputs, row.handle_outputs_ref),
            (row.assertion_result, row.assertion_result_ref),
        ]
    values = await parts.payloads.get_all(written)
    return [_wire(row, *values[3 * at : 3 * at + 3]) for at, row in enumerate(rows)]


def _wire(
    row: EvalResultRow,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any] | None,
    assertion: Mapping[str, Any] | None,
) -> WorkflowEvalResult:
    return WorkflowEvalResult(
        id=row.id,
        workflow_eval_run_id=row.run_id,
        eval_id=row.eval_id,
        workflow_id=row.workflow_id,
        block_id=row.block_id,
        block_type=row.block_type,
        lifecycle=lifecycle_of(row.status, row.error),
        timing=timing_of(row),
        handle_inputs=HANDLES.validate_python(inputs),
        handle_outputs=None if outputs is None else HANDLES.validate_python(outputs),
        assertion_result=None
        if assertion is None
        else AssertionResultBody.model_validate(assertion),
        verdict=row.verdict,
        verdict_summary=_summary(row.verdict, assertion),
    )


def _summary(verdict: str | None, assertion: Mapping[str, Any] | None) -> VerdictSummary | None:
    if verdict is None or assertion is None:
        return None
    return VerdictSummary(
        passed=verdict == "passed",
        assertions_passed=int(verdict == "passed"),
        assertions_failed=int(verdict == "failed"),
        blocked_assertions=int(verdict == "blocked"),
        failed_assertion_ids=[assertion["assertion_id"]] if verdict == "failed" else [],
    )
