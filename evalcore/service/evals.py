"""Saved evals: create, read, list, change, delete; their drift, freshness and latest results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import Query
from pydantic import Field
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion, FileHandle
from evalcore.service.drift import freshness_reasons, read_drift, subtree_fingerprint
from evalcore.service.errors import ServiceError, mistake
from evalcore.service.files import find_files
from evalcore.service.fingerprints import fingerprint, result_fingerprints
from evalcore.service.models import (
    AssertionBody,
    BlockTarget,
    CreateEval,
    Drift,
    Freshness,
    ManualSource,
    Page,
    RunStepSource,
    RunSummary,
    UpdateEval,
    WorkflowEval,
)
from evalcore.service.requests import CurrentContext, PageQuery, find_row, read_page
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    Kind,
    WorkflowRunRow,
    WorkflowStepRow,
    WorkflowVersionRow,
    new_id,
)
from evalcore.service.workflows import HANDLES, output_handles, read_draft, read_drafts
from evalcore.workflow.handles import unknown_handles

router = routes_of("/v1/workflows/evals", "evals")


class EvalQuery(PageQuery):
    """Which saved evals."""

    workflow_id: Annotated[str, Field(description="Whose evals.")]
    target_block_id: Annotated[str | None, Field(description="Those of one block only.")] = None


class _Saved(NamedTuple):
    """An eval and what it says now."""

    row: EvalRow
    revision: EvalRevisionRow


@router.post("", status_code=201)
async def create(body: CreateEval, context: CurrentContext) -> WorkflowEval:
    """Save an eval: a block, its frozen inputs, one assertion about its output."""
    async with context.database.reading() as session:
        draft = await read_draft(session, body.workflow_id)
        block_id = _existing_block(draft, body.target.block_id)
        check_handles(_blocks(draft)[block_id], body.source)
        inputs = await durable_inputs(session, body.workflow_id, block_id, body.source)
    assertion = assertion_of(body.assertion)
    identifier, now = new_id(Kind.EVAL), datetime.now(UTC)
    schema = _schema_fingerprint(draft, block_id, assertion)
    source = body.source.model_dump(mode="json")
    revision = _revision(identifier, block_id, source, inputs, schema, assertion)
    row = EvalRow(
        id=identifier,
        created_at=now,
        workflow_id=body.workflow_id,
        block_id=block_id,
        name=body.name,
        revision_id=revision.id,
    )
    async with context.database.transaction() as session:
        session.add_all([row, revision])
    return _wire(_Saved(row, revision), draft, {})


@router.get("")
async def list_all(
    query: Annotated[EvalQuery, Query()], context: CurrentContext
) -> Page[WorkflowEval]:
    """List the saved evals of a workflow, the newest first."""
    where: list[ColumnElement[bool]] = [EvalRow.deleted_at.is_(None)]
    if query.target_block_id is not None:
        where.append(EvalRow.block_id == query.target_block_id)
    async with context.database.reading() as session:
        draft = await read_draft(session, query.workflow_id)
        page = await read_page(
            session, EvalRow, query, [EvalRow.workflow_id == query.workflow_id], where
        )
        named = [row.revision_id for row in page.rows]
        rows = await session.scalars(select(EvalRevisionRow).where(EvalRevisionRow.id.in_(named)))
        revisions = {row.id: row for row in rows}
        results = await _latest_results(session, page.rows)
    data = [_wire(_Saved(row, revisions[row.revision_id]), draft, results) for row in page.rows]
    return Page(data=data, list_metadata=page.metadata)


@router.get("/{eval_id}")
async def get(eval_id: str, context: CurrentContext) -> WorkflowEval:
    """Return a saved eval, with drift and freshness as of now."""
    async with context.database.reading() as session:
        saved = await _find(session, eval_id)
        drafts = await read_drafts(session, [saved.row.workflow_id])
        results = await _latest_results(session, [saved.row])
    return _wire(saved, drafts.get(saved.row.workflow_id), results)


@router.patch("/{eval_id}")
async def update(eval_id: str, body: UpdateEval, context: CurrentContext) -> WorkflowEval:
    """Change an eval: omitted fields stay, a given assertion replaces the whole."""
    for name in ("assertion", "target", "source"):
        if name in body.model_fields_set and getattr(body, name) is None:
            raise ServiceError(400, f"{name} cannot be null")
    async with context.database.transaction() as session:
        saved = await _find(session, eval_id, locked=True)
        draft = await read_draft(session, saved.row.workflow_id)
        revision = await _changed(session, saved, body, draft)
        session.add(revision)
        saved.row.revision_id, saved.row.block_id = revision.id, revision.block_id
        if "name" in body.model_fields_set:
            saved.row.name = body.name
        results = await _latest_results(session, [saved.row])
    return _wire(_Saved(saved.row, revision), draft, results)


@router.delete("/{eval_id}", status_code=204)
async def delete(eval_id: str, context: CurrentContext) -> None:
    """Delete an eval; its results stay."""
    async with context.database.transaction() as session:
        row = await find_row(session, EvalRow, eval_id, "eval", locked=True)
        row.deleted_at = datetime.now(UTC)


async def _find(session: AsyncSession, eval_id: str, *, locked: bool = False) -> _Saved:
    """Return an eval, `locked` to be changed with its inputs. Raises `ServiceError` 404."""
    row = await find_row(session, EvalRow, eval_id, "eval", locked=locked)
    revision = await find_row(session, EvalRevisionRow, row.revision_id, "eval", values=locked)
    return _Saved(row, revision)


def assertion_of(body: AssertionBody) -> EvalAssertion:
    """Return an assertion with its id. Raises `ServiceError` 422 for one that nothing can meet."""
    for message in body.condition.mistakes():
        raise mistake(["body", "assertion", "condition"], message)
    return EvalAssertion(
        id=body.id or new_id(Kind.ASSERTION),
        target=body.target,
        condition=body.condition,
        label=body.label,
    )


async def _changed(
    session: AsyncSession, saved: _Saved, body: UpdateEval, draft: WorkflowVersionRow
) -> EvalRevisionRow:
    """Return what an eval says after a change."""
    before = saved.revision
    block_id, source, inputs = before.block_id, before.source, before.handle_inputs
    if body.target is not None:
        block_id = _existing_block(draft, body.target.block_id)
    if body.source is not None:
        frozen = inputs if block_id == before.block_id else ()
        check_handles(_blocks(draft).get(block_id), body.source, frozen)
        source = body.source.model_dump(mode="json")
        inputs = await durable_inputs(session, saved.row.workflow_id, block_id, body.source)
    assertion = EvalAssertion.model_validate(before.assertion)
    schema = before.schema_fingerprint
    if body.assertion is not None:
        assertion = assertion_of(body.assertion)
    if body.assertion is not None or body.target is not None:
        schema = _schema_fingerprint(draft, block_id, assertion)
    return _revision(saved.row.id, block_id, source, inputs, schema, assertion)


def _revision(
    eval_id: str,
    block_id: str,
    source: Any,
    inputs: Mapping[str, Any],
    schema: str | None,
    assertion: EvalAssertion,
) -> EvalRevisionRow:
    written = assertion.model_dump(mode="json", by_alias=True)
    return EvalRevisionRow(
        id=new_id(Kind.REVISION),
        created_at=datetime.now(UTC),
        eval_id=eval_id,
        block_id=block_id,
        source=source,
        handle_inputs=inputs,
        schema_fingerprint=schema,
        assertion=written,
        inputs_fingerprint=fingerprint(inputs),
        assertion_fingerprint=fingerprint([written["target"], written["condition"]]),
    )


def _blocks(draft: WorkflowVersionRow) -> Mapping[str, Mapping[str, Any]]:
    blocks: Mapping[str, Mapping[str, Any]] = draft.definition.get("blocks") or {}
    return blocks


def _existing_block(draft: WorkflowVersionRow, block_id: str) -> str:
    blocks = _blocks(draft)
    if block_id not in blocks:
        names = ", ".join(blocks) or "none"
        message = f"the workflow has no block '{block_id}'; it has {names}"
        raise mistake(["body", "target", "block_id"], message)
    return block_id


def _output_schemas(
    draft: WorkflowVersionRow, block_id: str
) -> dict[str, dict[str, Any] | None] | None:
    """Return the schemas of a block's output handles; None if there is no such block."""
    block = _blocks(draft).get(block_id)
    if block is None:
        return None
    return {handle.handle_id: handle.schema_ for handle in output_handles(block)}


def _schema_fingerprint(
    draft: WorkflowVersionRow, block_id: str, assertion: EvalAssertion
) -> str | None:
    handles = _output_schemas(draft, block_id) or {}
    schema = handles.get(assertion.target.output_handle_id)
    return subtree_fingerprint(schema, assertion.target.path)


# Their inputs: as the caller gives them, or copied from an earlier workflow run


def check_handles(
    block: Mapping[str, Any] | None,
    source: ManualSource | RunStepSource,
    frozen: Collection[str] = (),
) -> None:
    """Raise `ServiceError` 422 with all handles of a manual source that the block does not have.

    The names `frozen` are allowed: the eval has them from an earlier draft. A block that is gone
    has no handles to compare with.
    """
    if block is None or not isinstance(source, ManualSource):
        return
    unknown = unknown_handles(block, [name for name in source.handle_inputs if name not in frozen])
    if unknown:
        loc = ["body", "source", "handle_inputs"]
        mistakes = [
            {"loc": [*loc, name], "msg": message, "type": "unknown_handle"}
            for name, message in unknown.items()
        ]
        raise ServiceError(422, mistakes)


async def durable_inputs(
    session: AsyncSession, workflow_id: str, block_id: str, source: ManualSource | RunStepSource
) -> dict[str, Any]:
    """Return the inputs by handle, as JSON, to be frozen.

    Raises `ServiceError` 404 for a run, a step or a file that does not exist, 422 for a step of
    another block and for a block inside a loop without `step_id`.
    """
    if isinstance(source, ManualSource):
        inputs: Mapping[str, Any] = source.handle_inputs
    else:
        run = await find_row(session, WorkflowRunRow, source.run_id, "workflow run")
        if run.workflow_id != workflow_id:
            raise ServiceError(404, f"workflow run '{source.run_id[:80]}' does not exist")
        rows = await session.scalars(
            select(WorkflowStepRow)
            .where(WorkflowStepRow.run_id == run.id, WorkflowStepRow.block_id == block_id)
            .order_by(WorkflowStepRow.number)
        )
        step = _the_step([*rows], source, block_id)
        inputs = HANDLES.validate_python(step.inputs) or {}
    files = {value.document.id for value in inputs.values() if isinstance(value, FileHandle)}
    for file_id in sorted(files - (await find_files(session, files)).keys()):
        raise ServiceError(404, f"file '{file_id[:80]}' does not exist")
    return {handle: value.model_dump(mode="json") for handle, value in inputs.items()}


def _the_step(
    steps: list[WorkflowStepRow], source: RunStepSource, block_id: str
) -> WorkflowStepRow:
    if source.step_id is not None:
        for step in steps:
            if step.id == source.step_id:
                return step
        raise ServiceError(404, f"block '{block_id[:80]}' has no step '{source.step_id[:80]}'")
    if not steps:
        raise ServiceError(404, f"block '{block_id}' did not run in '{source.run_id}'")
    if len(steps) > 1 or steps[0].round is not None:
        where = "inside a loop" if steps[0].round is not None else f"{len(steps)} times"
        message = f"block '{block_id}' ran {where}: name one of its steps"
        raise mistake(["body", "source", "step_id"], message, "missing")
    return steps[0]


# As the wire shows them


async def _latest_results(
    session: AsyncSession, evals: Sequence[EvalRow]
) -> dict[str, EvalResultRow]:
    """Return the latest, latest passing and latest failing results of evals, by their ids."""
    named = {
        identifier
        for row in evals
        for identifier in (row.latest_result_id, row.latest_passing_id, row.latest_failing_id)
        if identifier is not None
    }
    if not named:
        return {}
    rows = await session.scalars(select(EvalResultRow).where(EvalResultRow.id.in_(named)))
    return {row.id: row for row in rows}


def _wire(
    saved: _Saved, draft: WorkflowVersionRow | None, results: Mapping[str, EvalResultRow]
) -> WorkflowEval:
    row, revision = saved
    assertion = EvalAssertion.model_validate(revision.assertion)
    drift = read_drift(
        None if draft is None else _output_schemas(draft, revision.block_id),
        assertion.target.output_handle_id,
        assertion.target.path,
        assertion.condition,
        revision.schema_fingerprint,
    )
    latest, passing, failing = (
        results.get(identifier or "")
        for identifier in (row.latest_result_id, row.latest_passing_id, row.latest_failing_id)
    )
    return WorkflowEval.model_validate(
        {
            "id": row.id,
            "workflow_id": row.workflow_id,
            "target": BlockTarget(type="block", block_id=revision.block_id),
            "source": revision.source,
            "name": row.name,
            "assertion": assertion,
            "schema_drift": drift.schema,
            "assertion_drift_status": drift.assertion,
            "freshness": _freshness(revision, draft, latest),
            "drift": Drift(status=drift.status),
            "latest_run_summary": _summary(latest),
            "latest_passing_run_summary": _summary(passing),
            "latest_failing_run_summary": _summary(failing),
        }
    )


def _freshness(
    revision: EvalRevisionRow, draft: WorkflowVersionRow | None, latest: EvalResultRow | None
) -> Freshness:
    if latest is None:
        return Freshness(status="unknown", reasons=["no_baseline"])
    if draft is None:
        return Freshness(status="stale", reasons=["validity_changed"])
    current = result_fingerprints(
        draft.definition,
        revision.block_id,
        inputs=revision.inputs_fingerprint,
        assertion=revision.assertion_fingerprint,
    )
    reasons = freshness_reasons(latest.fingerprints or {}, current)
    return Freshness(status="stale" if reasons else "fresh", reasons=[*reasons])


def _summary(result: EvalResultRow | None) -> RunSummary | None:
    if result is None:
        return None
    return RunSummary.model_validate(
        {
            "run_record_id": result.id,
            "status": result.lifecycle.status,
            "outcome": result.verdict,
            "started_at": result.started_at,
            "completed_at": result.completed_at,
            "assertions_passed": int(result.verdict == "passed"),
            "assertions_failed": int(result.verdict == "failed"),
            "blocked_assertions": int(result.verdict == "blocked"),
        }
    )
