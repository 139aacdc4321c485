"""Saved evals: create, read, list, change, delete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion, FileHandle, Handle
from evalcore.service.auth import Caller
from evalcore.service.context import Parts, ReadValue, StoredValue, damage_of
from evalcore.service.db import lock_owned, read_by_ids, read_owned, utc
from evalcore.service.drift import freshness_reasons, read_drift, subtree_fingerprint
from evalcore.service.errors import ServiceError, lacking, mistake, not_found
from evalcore.service.files import find_files
from evalcore.service.fingerprints import fingerprint, result_fingerprints
from evalcore.service.models import (
    AssertionBody,
    BlockTarget,
    CreateEval,
    Drift,
    Freshness,
    LifecycleStatus,
    ManualSource,
    Page,
    RunStepSource,
    RunSummary,
    UpdateEval,
    WorkflowEval,
)
from evalcore.service.requests import PageRequest, read_page, read_values
from evalcore.service.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    Kind,
    WorkflowRunRow,
    WorkflowStepRow,
    new_id,
)
from evalcore.service.workflows import Draft, read_draft, read_drafts
from evalcore.workflow.handles import unknown_handles

_HANDLES: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Handle])


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
    parts: Parts,
    caller: Caller,
    workflow_id: str,
    block_id: str,
    source: ManualSource | RunStepSource,
) -> dict[str, Any]:
    """Return the inputs by handle, as JSON, to be frozen.

    Raises `ServiceError` 404 for a run, a step or a file that does not exist, 422 for a step of
    another block and for a block inside a loop without `step_id`.
    """
    if isinstance(source, ManualSource):
        inputs = source.handle_inputs
    else:
        inputs = await _inputs_of_step(parts, caller, workflow_id, block_id, source)
    await _check_files(parts, caller, inputs)
    written: dict[str, Any] = _HANDLES.dump_python(inputs, mode="json")
    return written


async def _inputs_of_step(
    parts: Parts, caller: Caller, workflow_id: str, block_id: str, source: RunStepSource
) -> dict[str, Any]:
    async with parts.database.reading() as session:
        run = await session.scalar(
            select(WorkflowRunRow).where(
                WorkflowRunRow.id == source.run_id,
                WorkflowRunRow.project_id == caller.project_id,
            )
        )
        if run is None or run.workflow_id != workflow_id:
            raise not_found("workflow run", source.run_id)
        rows = await session.scalars(
            select(WorkflowStepRow)
            .where(WorkflowStepRow.run_id == run.id, WorkflowStepRow.block_id == block_id)
            .order_by(WorkflowStepRow.number)
        )
        steps = [*rows]
    step = _the_step(steps, source, block_id)
    return _HANDLES.validate_python(await parts.payloads.get(step.inputs, step.inputs_ref))


def _the_step(
    steps: list[WorkflowStepRow], source: RunStepSource, block_id: str
) -> WorkflowStepRow:
    if source.step_id is not None:
        for step in steps:
            if step.id == source.step_id:
                return step
        raise lacking("block", block_id, "step", source.step_id)
    if not steps:
        raise ServiceError(404, f"block '{block_id}' did not run in '{source.run_id}'")
    if len(steps) > 1 or steps[0].round is not None:
        where = "inside a loop" if steps[0].round is not None else f"{len(steps)} times"
        message = f"block '{block_id}' ran {where}: name one of its steps"
        raise mistake(["body", "source", "step_id"], message, "missing")
    return steps[0]


async def _check_files(parts: Parts, caller: Caller, inputs: Mapping[str, Any]) -> None:
    """Raise `ServiceError` 404 for a file that the caller's project does not have."""
    files = {value.document.id for value in inputs.values() if isinstance(value, FileHandle)}
    if not files:
        return
    async with parts.database.reading() as session:
        files_of_project = await find_files(session, caller, sorted(files))
    for file_id in sorted(files - files_of_project.keys()):
        raise not_found("file", file_id)


# They may be large, and a summary has nothing of them.
_NOT_SUMMARIZED: Final = ("handle_outputs", "assertion_result", "error")


@dataclass(frozen=True, slots=True)
class EvalView:
    """An eval and what it says now."""

    saved: EvalRow
    revision: EvalRevisionRow


async def view_evals(
    parts: Parts,
    views: Sequence[EvalView],
    drafts: Mapping[str, Draft],
    results: Mapping[str, EvalResultRow],
) -> list[WorkflowEval]:
    """Return evals for the wire; `results` are their latest ones."""
    sources = await parts.payloads.read([stored_of(view.revision)[0] for view in views])
    return [
        view_eval(view, source, drafts.get(view.saved.workflow_id), results)
        for view, source in zip(views, sources, strict=True)
    ]


def stored_of(revision: EvalRevisionRow) -> list[StoredValue]:
    """Return what the wire shows of a revision: its source and its assertion."""
    return [(revision.source, revision.source_ref), (revision.assertion, None)]


async def latest_results(
    session: AsyncSession, caller: Caller, evals: Sequence[EvalRow]
) -> dict[str, EvalResultRow]:
    """Return the latest, latest passing and latest failing results of evals, by their ids."""
    named = {
        identifier
        for row in evals
        for identifier in (row.latest_result_id, row.latest_passing_id, row.latest_failing_id)
        if identifier is not None
    }
    return await read_by_ids(session, EvalResultRow, named, caller.project_id, _NOT_SUMMARIZED)


def view_eval(
    view: EvalView, source: ReadValue, draft: Draft | None, results: Mapping[str, EvalResultRow]
) -> WorkflowEval:
    """Return an eval for the wire."""
    saved, revision = view.saved, view.revision
    assertion = EvalAssertion.model_validate(revision.assertion)
    drift = read_drift(
        None if draft is None or draft.read.damage else draft.output_schemas(revision.block_id),
        assertion.target.output_handle_id,
        assertion.target.path,
        assertion.condition,
        revision.schema_fingerprint,
    )
    damaged = {"source": source}
    if draft is not None:
        damaged |= dict.fromkeys(("schema_drift", "freshness"), draft.read)
    return WorkflowEval.model_validate(
        {
            "id": saved.id,
            "workflow_id": saved.workflow_id,
            "target": BlockTarget(type="block", block_id=revision.block_id),
            "source": source.value,
            "name": saved.name,
            "assertion": assertion,
            "schema_drift": drift.schema,
            "assertion_drift_status": drift.assertion,
            "freshness": _freshness(view, draft, results.get(saved.latest_result_id or "")),
            "drift": Drift(status=drift.status),
            "latest_run_summary": _summary(results.get(saved.latest_result_id or "")),
            "latest_passing_run_summary": _summary(results.get(saved.latest_passing_id or "")),
            "latest_failing_run_summary": _summary(results.get(saved.latest_failing_id or "")),
            "damage": damage_of(damaged),
        }
    )


def _freshness(view: EvalView, draft: Draft | None, latest: EvalResultRow | None) -> Freshness:
    if latest is None:
        return Freshness(status="unknown", reasons=["no_baseline"])
    if draft is None:
        return Freshness(status="stale", reasons=["validity_changed"])
    if draft.read.damage is not None:
        return Freshness(status="unknown", reasons=[])
    current = result_fingerprints(
        draft.definition,
        view.revision.block_id,
        inputs=view.revision.inputs_fingerprint,
        assertion=view.revision.assertion_fingerprint,
    )
    reasons = freshness_reasons(latest.fingerprints or {}, current)
    return Freshness(status="stale" if reasons else "fresh", reasons=[*reasons])


def _summary(result: EvalResultRow | None) -> RunSummary | None:
    if result is None:
        return None
    return RunSummary.model_validate(
        {
            "run_record_id": result.id,
            "status": LifecycleStatus(result.status),
            "outcome": result.verdict,
            "started_at": utc(result.started_at),
            "completed_at": utc(result.completed_at),
            "assertions_passed": int(result.verdict == "passed"),
            "assertions_failed": int(result.verdict == "failed"),
            "blocked_assertions": int(result.verdict == "blocked"),
        }
    )


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
