"""Saved evals: create, read, list, change, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion
from evalcore.service.access.tokens import Caller
from evalcore.service.database.rows import lock_owned, read_by_ids, read_owned
from evalcore.service.database.tables import EvalRevisionRow, EvalRow
from evalcore.service.drafts import Draft, read_draft, read_drafts
from evalcore.service.drift import subtree_fingerprint
from evalcore.service.eval_views import EvalView, latest_results, stored_of, view_eval, view_evals
from evalcore.service.failure import ServiceError, mistake, not_found
from evalcore.service.fingerprints import fingerprint
from evalcore.service.identifiers import Kind, new_id
from evalcore.service.input_sources import check_handles, durable_inputs
from evalcore.service.pages import PageRequest, read_page, read_values
from evalcore.service.parts import Parts
from evalcore.service.wire.base import Page
from evalcore.service.wire.evals import AssertionBody, CreateEval, UpdateEval, WorkflowEval


@dataclass(frozen=True, slots=True)
class _Revision:
    """What an eval says: all parts of a revision before it has a row."""

    block_id: str
    source: Mapping[str, Any]
    handle_inputs: Mapping[str, Any]
    assertion: EvalAssertion
    schema_fingerprint: str | None


async def create_eval(parts: Parts, caller: Caller, body: CreateEval) -> WorkflowEval:
    """Save an eval. Raises `ServiceError` 404 for a workflow or run, 422 for what does not fit."""
    async with parts.database.reading() as session:
        draft = await read_draft(parts, session, caller, body.workflow_id)
    block_id = _existing_block(draft, body.target.block_id)
    check_handles(draft.blocks[block_id], body.source)
    inputs = await durable_inputs(parts, caller, body.workflow_id, block_id, body.source)
    assertion = assertion_of(body.assertion)
    revision = _Revision(
        block_id,
        body.source.model_dump(mode="json"),
        inputs,
        assertion,
        _schema_fingerprint(draft, block_id, assertion),
    )
    identifier, now = new_id(Kind.EVAL), datetime.now(UTC)
    row = await _revision_row(parts, caller, identifier, revision, now)
    async with parts.database.transaction() as session:
        session.add(row)
        saved = EvalRow(
            id=identifier,
            project_id=caller.project_id,
            created_at=now,
            workflow_id=body.workflow_id,
            block_id=block_id,
            name=body.name,
            revision_id=row.id,
        )
        session.add(saved)
    (wire,) = await view_evals(parts, [EvalView(saved, row)], {body.workflow_id: draft}, {})
    return wire


async def get_eval(parts: Parts, caller: Caller, eval_id: str) -> WorkflowEval:
    """Return a saved eval. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        saved, revision = await find_eval(session, caller, eval_id)
        drafts = await read_drafts(parts, session, caller, [saved.workflow_id])
        results = await latest_results(session, caller, [saved])
    (wire,) = await view_evals(parts, [EvalView(saved, revision)], drafts, results)
    return wire


async def list_evals(
    parts: Parts, caller: Caller, page: PageRequest, *, workflow_id: str, block_id: str | None
) -> Page[WorkflowEval]:
    """Return a page of the saved evals of a workflow; the number of queries does not grow."""
    scope = [EvalRow.project_id == caller.project_id, EvalRow.workflow_id == workflow_id]
    where = [
        EvalRow.deleted_at.is_(None),
        *([EvalRow.block_id == block_id] if block_id is not None else []),
    ]
    async with parts.database.reading() as session:
        drafts = await read_drafts(parts, session, caller, [workflow_id])
        if workflow_id not in drafts:
            raise not_found("workflow", workflow_id)
        rows = await read_page(session, EvalRow, page, scope, where)
        revisions = await read_by_ids(
            session,
            EvalRevisionRow,
            [row.revision_id for row in rows.rows],
            caller.project_id,
            ("handle_inputs",),
        )
        results = await latest_results(session, caller, rows.rows)
    rows, values = await read_values(
        parts.payloads, rows, lambda row: stored_of(revisions[row.revision_id])
    )
    data = [
        view_eval(EvalView(row, revisions[row.revision_id]), source, drafts[workflow_id], results)
        for row, (source, _) in zip(rows.rows, values, strict=True)
    ]
    return Page(data=data, list_metadata=rows.metadata)


async def update_eval(parts: Parts, caller: Caller, eval_id: str, body: UpdateEval) -> WorkflowEval:
    """Change what is named; the rest stays. Raises `ServiceError` 400, 404, 422."""
    _refuse_nulls(body)
    async with parts.database.reading() as session:
        saved, before = await find_eval(session, caller, eval_id)
        draft = await read_draft(parts, session, caller, saved.workflow_id)
    revision = await _changed(parts, caller, saved, before, body, draft)
    now = datetime.now(UTC)
    row = await _revision_row(parts, caller, eval_id, revision, now)
    async with parts.database.transaction() as session:
        saved, current = await find_eval(session, caller, eval_id, locked=True)
        if current.id != before.id:
            raise ServiceError(409, "the eval was changed at the same time; read it and try again")
        session.add(row)
        saved.revision_id, saved.block_id = row.id, revision.block_id
        if "name" in body.model_fields_set:
            saved.name = body.name
        results = await latest_results(session, caller, [saved])
    (wire,) = await view_evals(parts, [EvalView(saved, row)], {saved.workflow_id: draft}, results)
    return wire


async def delete_eval(parts: Parts, caller: Caller, eval_id: str) -> None:
    """Delete an eval; its results stay. Raises `ServiceError` 404."""
    async with parts.database.transaction() as session:
        saved, _ = await find_eval(session, caller, eval_id, locked=True)
        saved.deleted_at = datetime.now(UTC)


async def find_eval(
    session: AsyncSession, caller: Caller, eval_id: str, *, locked: bool = False
) -> tuple[EvalRow, EvalRevisionRow]:
    """Return an eval of the caller's project and what it says now; `locked` to be changed.

    Raises `ServiceError` 404.
    """
    read = lock_owned if locked else read_owned
    saved: EvalRow | None = await read(session, EvalRow, eval_id, caller.project_id)
    if saved is None or saved.deleted_at is not None:
        raise not_found("eval", eval_id)
    revision = await read_owned(session, EvalRevisionRow, saved.revision_id, caller.project_id)
    if revision is None:
        raise not_found("eval", eval_id)
    return saved, revision


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
    parts: Parts,
    caller: Caller,
    saved: EvalRow,
    before: EvalRevisionRow,
    body: UpdateEval,
    draft: Draft,
) -> _Revision:
    block_id = before.block_id
    if body.target is not None:
        block_id = _existing_block(draft, body.target.block_id)
    if body.source is None:
        source = await parts.payloads.get(before.source, before.source_ref)
        inputs = await parts.payloads.get(before.handle_inputs, before.handle_inputs_ref)
    else:
        stored = [(before.handle_inputs, before.handle_inputs_ref)]
        frozen = (await parts.payloads.read(stored))[0].value or ()
        check_handles(
            draft.blocks.get(block_id), body.source, frozen if block_id == before.block_id else ()
        )
        source = body.source.model_dump(mode="json")
        inputs = await durable_inputs(parts, caller, saved.workflow_id, block_id, body.source)
    assertion = EvalAssertion.model_validate(before.assertion)
    schema = before.schema_fingerprint
    if body.assertion is not None:
        assertion = assertion_of(body.assertion)
    if body.assertion is not None or body.target is not None:
        schema = _schema_fingerprint(draft, block_id, assertion)
    return _Revision(block_id, source, inputs, assertion, schema)


async def _revision_row(
    parts: Parts, caller: Caller, eval_id: str, revision: _Revision, now: datetime
) -> EvalRevisionRow:
    source = await parts.payloads.put(revision.source, caller.project_id)
    inputs = await parts.payloads.put(revision.handle_inputs, caller.project_id)
    assertion = revision.assertion.model_dump(mode="json", by_alias=True)
    return EvalRevisionRow(
        id=new_id(Kind.REVISION),
        project_id=caller.project_id,
        created_at=now,
        eval_id=eval_id,
        block_id=revision.block_id,
        source=source.inline,
        source_ref=source.ref,
        handle_inputs=inputs.inline,
        handle_inputs_ref=inputs.ref,
        assertion=assertion,
        schema_fingerprint=revision.schema_fingerprint,
        inputs_fingerprint=fingerprint(revision.handle_inputs),
        assertion_fingerprint=fingerprint([assertion["target"], assertion["condition"]]),
    )


def _existing_block(draft: Draft, block_id: str) -> str:
    if block_id not in draft.blocks:
        names = ", ".join(draft.blocks) or "none"
        message = f"the workflow has no block '{block_id}'; it has {names}"
        raise mistake(["body", "target", "block_id"], message)
    return block_id


def _schema_fingerprint(draft: Draft, block_id: str, assertion: EvalAssertion) -> str | None:
    handles = draft.output_schemas(block_id) or {}
    schema = handles.get(assertion.target.output_handle_id)
    return subtree_fingerprint(schema, assertion.target.path)


def _refuse_nulls(body: UpdateEval) -> None:
    for name in ("assertion", "target", "source"):
        if name in body.model_fields_set and getattr(body, name) is None:
            raise ServiceError(400, f"{name} cannot be null")
