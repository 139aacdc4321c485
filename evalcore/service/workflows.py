"""Registered workflows: drafts, published versions, blocks with handles; their runs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel, ConfigDict, TypeAdapter
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import Handle
from evalcore.errors import LoadError, Problem
from evalcore.formats.workflow_file import read_registered_workflow
from evalcore.service.errors import ServiceError
from evalcore.service.models import (
    BlockHandle,
    CreateWorkflow,
    Definition,
    LifecycleStatus,
    Page,
    RegisteredWorkflow,
    StartWorkflowRun,
    UpdateDraft,
    WorkflowBlock,
    WorkflowRun,
    WorkflowStep,
)
from evalcore.service.requests import (
    CurrentContext,
    PageQuery,
    WorkflowsRoute,
    find_row,
    read_page,
)
from evalcore.service.requests import (
    router as routes_of,
)
from evalcore.service.tables import (
    Kind,
    WorkflowRow,
    WorkflowRunRow,
    WorkflowStepRow,
    WorkflowVersionRow,
    new_engine_run,
    new_id,
)
from evalcore.workflow.handles import FIRST_OUTPUT, input_handles, output_handle
from evalcore.workflow.values import is_schema

_JSON_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "mapping", "map"), "object"),
}

HANDLES: Final[TypeAdapter[dict[str, Any] | None]] = TypeAdapter(dict[str, Handle] | None)

router = routes_of("/v1/workflows", "workflows", WorkflowsRoute)
runs_router = routes_of("/v1/workflows", "workflow runs")


class VersionQuery(BaseModel):
    """Which version of a workflow: its draft without a name."""

    model_config = ConfigDict(extra="forbid")

    version_id: str | None = None


@router.post("", status_code=201)
async def register(body: CreateWorkflow, context: CurrentContext) -> RegisteredWorkflow:
    """Register a workflow: a workflow file as a mapping, or its YAML text."""
    definition = checked_definition(body.definition)
    now, identifier, draft = datetime.now(UTC), new_id(Kind.WORKFLOW), new_id(Kind.DRAFT)
    row = WorkflowRow(id=identifier, created_at=now, name=body.name, draft_id=draft, published=0)
    async with context.database.transaction() as session:
        session.add(row)
        session.add(_version(identifier, draft, definition, now))
    return _wire(row, draft, definition)


@router.get("")
async def list_all(
    query: Annotated[PageQuery, Query()], context: CurrentContext
) -> Page[RegisteredWorkflow]:
    """List workflows at their drafts, the newest first."""
    async with context.database.reading() as session:
        page = await read_page(
            session, WorkflowRow, query, where=[WorkflowRow.deleted_at.is_(None)]
        )
        drafts = await read_drafts(session, [row.id for row in page.rows])
    data = [_wire(row, row.draft_id, drafts[row.id].definition) for row in page.rows]
    return Page(data=data, list_metadata=page.metadata)


@router.get("/{workflow_id}")
async def get(
    workflow_id: str, query: Annotated[VersionQuery, Query()], context: CurrentContext
) -> RegisteredWorkflow:
    """Return a workflow at its draft, or at the version `version_id`."""
    async with context.database.reading() as session:
        row = await find_workflow(session, workflow_id)
        version = await find_version(session, workflow_id, query.version_id or row.draft_id)
    return _wire(row, version.version_id, version.definition)


@router.put("/{workflow_id}/draft")
async def update_draft(
    workflow_id: str, body: UpdateDraft, context: CurrentContext
) -> RegisteredWorkflow:
    """Replace the draft."""
    definition = checked_definition(body.definition)
    now, draft = datetime.now(UTC), new_id(Kind.DRAFT)
    async with context.database.transaction() as session:
        row = await find_workflow(session, workflow_id, locked=True)
        row.draft_id = draft
        session.add(_version(workflow_id, draft, definition, now))
        return _wire(row, draft, definition)


@router.post("/{workflow_id}/publish")
async def publish(workflow_id: str, context: CurrentContext) -> RegisteredWorkflow:
    """Publish the draft as the next version, `v1`, `v2`, …; it can be edited on."""
    async with context.database.transaction() as session:
        row = await find_workflow(session, workflow_id, locked=True)
        draft = await find_version(session, workflow_id, row.draft_id)
        row.published += 1
        name = f"v{row.published}"
        session.add(_version(workflow_id, name, draft.definition, datetime.now(UTC)))
    return _wire(row, name, draft.definition)


@router.delete("/{workflow_id}", status_code=204)
async def delete(workflow_id: str, context: CurrentContext) -> None:
    """Delete a workflow; its runs and results stay."""
    async with context.database.transaction() as session:
        row = await find_workflow(session, workflow_id, locked=True)
        row.deleted_at = datetime.now(UTC)


async def find_workflow(
    session: AsyncSession, workflow_id: str, *, locked: bool = False
) -> WorkflowRow:
    """Return a workflow, `locked` to be changed. Raises `ServiceError` 404."""
    return await find_row(session, WorkflowRow, workflow_id, "workflow", locked=locked)


async def find_version(
    session: AsyncSession, workflow_id: str, version_id: str
) -> WorkflowVersionRow:
    """Return a version of a workflow. Raises `ServiceError` 404."""
    versions = WorkflowVersionRow
    row = await session.scalar(
        select(versions).where(
            versions.workflow_id == workflow_id, versions.version_id == version_id
        )
    )
    if row is None:
        raise ServiceError(404, f"workflow '{workflow_id[:80]}' has no version '{version_id[:80]}'")
    return row


async def read_drafts(
    session: AsyncSession, workflow_ids: Sequence[str]
) -> dict[str, WorkflowVersionRow]:
    """Return the drafts of workflows by their ids; those deleted are left out."""
    versions = WorkflowVersionRow
    named = and_(
        WorkflowRow.id == versions.workflow_id, WorkflowRow.draft_id == versions.version_id
    )
    rows = await session.scalars(
        select(versions)
        .join(WorkflowRow, named)
        .where(WorkflowRow.id.in_(workflow_ids), WorkflowRow.deleted_at.is_(None))
    )
    return {row.workflow_id: row for row in rows}


async def read_draft(session: AsyncSession, workflow_id: str) -> WorkflowVersionRow:
    """Return the draft of a workflow. Raises `ServiceError` 404."""
    drafts = await read_drafts(session, [workflow_id])
    if workflow_id not in drafts:
        raise ServiceError(404, f"workflow '{workflow_id[:80]}' does not exist")
    return drafts[workflow_id]


def checked_definition(written: Definition) -> dict[str, Any]:
    """Return a definition as the engine runs it. Raises `ServiceError` 422 with all mistakes."""
    try:
        return read_registered_workflow(written)
    except LoadError as error:
        is_text = isinstance(written, str)
        mistakes = [_mistake(problem, is_text=is_text) for problem in error.problems]
        raise ServiceError(422, mistakes) from error


def _mistake(problem: Problem, *, is_text: bool) -> dict[str, Any]:
    """Return a mistake of a definition on the wire; of YAML text with its line."""
    line = f"line {problem.line}: " if is_text and problem.line is not None else ""
    return {
        "loc": ["body", "definition", *([problem.path] if problem.path else [])],
        "msg": line + problem.message,
        "type": "workflow_invalid",
    }


def _version(
    workflow_id: str, version_id: str, definition: Any, now: datetime
) -> WorkflowVersionRow:
    return WorkflowVersionRow(
        id=new_id(Kind.DRAFT),
        created_at=now,
        workflow_id=workflow_id,
        version_id=version_id,
        definition=definition,
    )


def _wire(row: WorkflowRow, version_id: str, definition: Mapping[str, Any]) -> RegisteredWorkflow:
    return RegisteredWorkflow(
        id=row.id, name=row.name, version_id=version_id, blocks=blocks_of(definition)
    )


def blocks_of(definition: Mapping[str, Any]) -> list[WorkflowBlock]:
    """Return the blocks of a definition with their handles, in the order of the file."""
    blocks: Mapping[str, Mapping[str, Any]] = definition.get("blocks") or {}
    return [
        WorkflowBlock(
            id=name,
            type=str(block.get("type")),
            inputs=_inputs(block),
            outputs=output_handles(block),
        )
        for name, block in blocks.items()
    ]


def _inputs(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return a handle for each declared input; one for all that it sees if none is declared."""
    return [
        BlockHandle(
            handle_id=handle.handle_id, name=handle.name or "inputs", type=handle.type, schema=None
        )
        for handle in input_handles(block.get("inputs"))
    ]


def output_handles(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return the output handle, and of a dispatch block one for each exit."""
    schema = output_schema(block)
    handles = [BlockHandle(handle_id=FIRST_OUTPUT, name="output", type="json", schema=schema)]
    if block.get("type") == "dispatch":
        for number, member in enumerate(block.get("exits") or ()):
            handles.append(
                BlockHandle(
                    handle_id=output_handle(number),
                    name=str(member.get("id")),
                    type="json",
                    schema=None,
                )
            )
    return handles


def output_schema(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a block's output: declared, or that of its type; None if unknown.

    `outputs` is a JSON Schema of the whole, or names with types or schemas. A `workflow` block's
    `outputs` say what it takes from the other workflow, and declare nothing.
    """
    declared = block.get("outputs")
    if not isinstance(declared, Mapping) or not declared or block.get("type") == "workflow":
        return None
    if is_schema(declared):
        return dict(declared)
    return {
        "type": "object",
        "properties": {name: _property(written) for name, written in declared.items()},
        "required": list(declared),
    }


def _property(written: Any) -> dict[str, Any]:
    if isinstance(written, Mapping):
        return dict(written)
    named = _JSON_TYPES.get(str(written).lower())
    return {} if named is None else {"type": named}


# Runs of whole workflows, and the steps that they recorded


@runs_router.post("/{workflow_id}/runs", status_code=202)
async def start(workflow_id: str, body: StartWorkflowRun, context: CurrentContext) -> WorkflowRun:
    """Run the workflow's draft; its steps can be saved as evals."""
    now = datetime.now(UTC)
    async with context.database.transaction() as session:
        workflow = await find_workflow(session, workflow_id)
        row = WorkflowRunRow(
            id=new_id(Kind.WORKFLOW_RUN),
            created_at=now,
            engine_run=new_engine_run(now),
            workflow_id=workflow_id,
            version_id=workflow.draft_id,
            inputs=body.inputs,
            status=LifecycleStatus.PENDING,
        )
        session.add(row)
    context.wake()
    return _run_wire(row)


@runs_router.get("/runs/{run_id}", name="get")
async def get_workflow_run(run_id: str, context: CurrentContext) -> WorkflowRun:
    """Return a workflow run."""
    async with context.database.reading() as session:
        return _run_wire(await find_row(session, WorkflowRunRow, run_id, "workflow run"))


@runs_router.get("/runs/{run_id}/steps")
async def list_steps(
    run_id: str, query: Annotated[PageQuery, Query()], context: CurrentContext
) -> Page[WorkflowStep]:
    """List the steps of a workflow run: one for each time that a block ran."""
    async with context.database.reading() as session:
        await find_row(session, WorkflowRunRow, run_id, "workflow run")
        page = await read_page(session, WorkflowStepRow, query, [WorkflowStepRow.run_id == run_id])
    return Page(data=[*map(_step, page.rows)], list_metadata=page.metadata)


def _run_wire(row: WorkflowRunRow) -> WorkflowRun:
    return WorkflowRun(
        id=row.id,
        workflow_id=row.workflow_id,
        workflow_version_id=row.version_id,
        lifecycle=row.lifecycle,
        timing=row.timing,
        inputs=row.inputs,
        output=row.output,
    )


def _step(row: WorkflowStepRow) -> WorkflowStep:
    return WorkflowStep(
        id=row.id,
        block_id=row.block_id,
        round=row.round,
        lifecycle=row.lifecycle,
        timing=row.timing,
        handle_inputs=HANDLES.validate_python(row.inputs),
        handle_outputs=HANDLES.validate_python(row.outputs),
    )
