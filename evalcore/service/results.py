"""The results of eval runs: immutable once they are final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import Handle
from evalcore.service.auth import Caller
from evalcore.service.context import Parts, ReadValue, StoredValue, damage_of
from evalcore.service.db import read_by_ids, read_owned
from evalcore.service.errors import not_found
from evalcore.service.models import AssertionResultBody, Page, VerdictSummary, WorkflowEvalResult
from evalcore.service.requests import PageRequest, RunFilter, read_page, read_values
from evalcore.service.runs import find_eval_run, lifecycle_of, timing_of
from evalcore.service.tables import EvalResultRow, EvalRevisionRow

# They may be large, and a result shows nothing of them.
_NOT_OF_RESULTS: Final = ("source", "assertion")
_HANDLES: TypeAdapter[dict[str, Any] | None] = TypeAdapter(dict[str, Handle] | None)


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
    rows, values = await read_values(
        parts.payloads, rows, lambda row: _stored(row, revisions[row.revision_id])
    )
    data = [_wire(row, *read) for row, read in zip(rows.rows, values, strict=True)]
    return Page(data=data, list_metadata=rows.metadata)


async def get_result(parts: Parts, caller: Caller, result_id: str) -> WorkflowEvalResult:
    """Return a result. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        row = await read_owned(session, EvalResultRow, result_id, caller.project_id)
        if row is None:
            raise not_found("result", result_id)
        revisions = await _revisions(session, caller, [row])
    return _wire(row, *await parts.payloads.read(_stored(row, revisions[row.revision_id])))


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


def _stored(row: EvalResultRow, revision: EvalRevisionRow) -> list[StoredValue]:
    return [
        (revision.handle_inputs, revision.handle_inputs_ref),
        (row.handle_outputs, row.handle_outputs_ref),
        (row.assertion_result, row.assertion_result_ref),
    ]


def _wire(
    row: EvalResultRow, inputs: ReadValue, outputs: ReadValue, assertion: ReadValue
) -> WorkflowEvalResult:
    fields = {"handle_inputs": inputs, "handle_outputs": outputs, "assertion_result": assertion}
    return WorkflowEvalResult(
        id=row.id,
        workflow_eval_run_id=row.run_id,
        eval_id=row.eval_id,
        workflow_id=row.workflow_id,
        block_id=row.block_id,
        block_type=row.block_type,
        lifecycle=lifecycle_of(row.status, row.error),
        timing=timing_of(row),
        handle_inputs=_HANDLES.validate_python(inputs.value),
        handle_outputs=_HANDLES.validate_python(outputs.value),
        assertion_result=None
        if assertion.value is None
        else AssertionResultBody.model_validate(assertion.value),
        verdict=row.verdict,
        verdict_summary=_summary(row.verdict, assertion.value),
        damage=damage_of(fields),
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
