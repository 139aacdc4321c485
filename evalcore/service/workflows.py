"""Registered workflows: their drafts and published versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import Select, and_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.errors import LoadError, Problem
from evalcore.formats.workflow_file import read_registered_workflow
from evalcore.service.auth import Caller
from evalcore.service.context import DamagedPayloadError, Parts, ReadValue, StoredValue, damage_of
from evalcore.service.db import lock_owned, read_owned, select_rows
from evalcore.service.errors import ServiceError, lacking, not_found, refuse_nul
from evalcore.service.models import (
    BlockHandle,
    CreateWorkflow,
    Definition,
    Page,
    RegisteredWorkflow,
    WorkflowBlock,
)
from evalcore.service.requests import PageRequest, read_page, read_values
from evalcore.service.tables import Kind, WorkflowRow, WorkflowVersionRow, new_id
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


async def create_workflow(parts: Parts, caller: Caller, body: CreateWorkflow) -> RegisteredWorkflow:
    """Register a workflow with its first draft. Raises `ServiceError` 422 with all mistakes."""
    definition = checked_definition(body.definition)
    payload = await parts.payloads.put(definition, caller.project_id)
    now, identifier, draft = datetime.now(UTC), new_id(Kind.WORKFLOW), new_id(Kind.DRAFT)
    async with parts.database.transaction() as session:
        session.add(
            WorkflowRow(
                id=identifier,
                project_id=caller.project_id,
                created_at=now,
                name=body.name,
                draft_id=draft,
                published=0,
            )
        )
        session.add(_version(caller, identifier, draft, payload.inline, payload.ref, now))
    return _wire(identifier, body.name, draft, definition)


async def update_draft(
    parts: Parts, caller: Caller, workflow_id: str, written: Definition
) -> RegisteredWorkflow:
    """Replace the draft of a workflow by a new one. Raises `ServiceError` 404, 422."""
    definition = checked_definition(written)
    payload = await parts.payloads.put(definition, caller.project_id)
    now, draft = datetime.now(UTC), new_id(Kind.DRAFT)
    async with parts.database.transaction() as session:
        row = await find_workflow(session, caller, workflow_id, locked=True)
        row.draft_id = draft
        session.add(_version(caller, workflow_id, draft, payload.inline, payload.ref, now))
        return _wire(workflow_id, row.name, draft, definition)


async def publish(parts: Parts, caller: Caller, workflow_id: str) -> RegisteredWorkflow:
    """Publish the draft as the next version, `v1`, `v2`, …; it stays the draft, too."""
    now = datetime.now(UTC)
    async with parts.database.transaction() as session:
        row = await find_workflow(session, caller, workflow_id, locked=True)
        draft = await find_version(session, workflow_id, row.draft_id)
        definition = await parts.payloads.get(draft.definition, draft.definition_ref)
        row.published += 1
        name = f"v{row.published}"
        session.add(
            _version(caller, workflow_id, name, draft.definition, draft.definition_ref, now)
        )
    return _wire(workflow_id, row.name, name, definition)


async def get_workflow(
    parts: Parts, caller: Caller, workflow_id: str, version_id: str | None
) -> RegisteredWorkflow:
    """Return a workflow at its draft or at another version. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        row = await find_workflow(session, caller, workflow_id)
        version = await find_version(session, workflow_id, version_id or row.draft_id)
    (read,) = await parts.payloads.read([(version.definition, version.definition_ref)])
    return _read_wire(row, version.version_id, read)


async def list_workflows(
    parts: Parts, caller: Caller, page: PageRequest
) -> Page[RegisteredWorkflow]:
    """Return a page of workflows at their drafts, the newest first."""
    mine = [WorkflowRow.project_id == caller.project_id]
    async with parts.database.reading() as session:
        rows = await read_page(session, WorkflowRow, page, mine, [WorkflowRow.deleted_at.is_(None)])
        drafts = await session.scalars(
            select(WorkflowVersionRow).where(
                WorkflowVersionRow.workflow_id.in_([row.id for row in rows.rows]),
                WorkflowVersionRow.version_id.in_([row.draft_id for row in rows.rows]),
            )
        )
        versions = {version.workflow_id: version for version in drafts}

    def stored_of(row: WorkflowRow) -> list[StoredValue]:
        return [(versions[row.id].definition, versions[row.id].definition_ref)]

    rows, values = await read_values(parts.payloads, rows, stored_of)
    data = [
        _read_wire(row, row.draft_id, read) for row, (read,) in zip(rows.rows, values, strict=True)
    ]
    return Page(data=data, list_metadata=rows.metadata)


async def delete_workflow(parts: Parts, caller: Caller, workflow_id: str) -> None:
    """Delete a workflow; its runs and results stay. Raises `ServiceError` 404."""
    async with parts.database.transaction() as session:
        row = await find_workflow(session, caller, workflow_id, locked=True)
        row.deleted_at = datetime.now(UTC)


async def find_workflow(
    session: AsyncSession, caller: Caller, workflow_id: str, *, locked: bool = False
) -> WorkflowRow:
    """Return a workflow of the caller's project, `locked` to be changed.

    Raises `ServiceError` 404.
    """
    read = lock_owned if locked else read_owned
    row: WorkflowRow | None = await read(session, WorkflowRow, workflow_id, caller.project_id)
    if row is None or row.deleted_at is not None:
        raise not_found("workflow", workflow_id)
    return row


async def find_version(
    session: AsyncSession, workflow_id: str, version_id: str
) -> WorkflowVersionRow:
    """Return a version of a workflow. Raises `ServiceError` 404."""
    versions = WorkflowVersionRow
    rows = await session.execute(
        select_rows(
            versions, versions.workflow_id == workflow_id, versions.version_id == version_id
        )
    )
    row = cast("WorkflowVersionRow | None", rows.first())
    if row is None:
        raise lacking("workflow", workflow_id, "version", version_id)
    return row


def checked_definition(written: Definition) -> dict[str, Any]:
    """Return a definition as the engine runs it. Raises `ServiceError` 422 with all mistakes."""
    try:
        definition = read_registered_workflow(written)
    except LoadError as error:
        is_text = isinstance(written, str)
        mistakes = [_mistake(problem, is_text=is_text) for problem in error.problems]
        raise ServiceError(422, mistakes) from error
    refuse_nul(definition, ["body", "definition"])
    return definition


def _mistake(problem: Problem, *, is_text: bool) -> dict[str, Any]:
    """Return a mistake of a definition on the wire; of YAML text with its line."""
    line = f"line {problem.line}: " if is_text and problem.line is not None else ""
    return {
        "loc": ["body", "definition", *([problem.path] if problem.path else [])],
        "msg": line + problem.message,
        "type": "workflow_invalid",
    }


def _version(
    caller: Caller, workflow_id: str, version_id: str, inline: Any, ref: str | None, now: datetime
) -> WorkflowVersionRow:
    return WorkflowVersionRow(
        id=new_id(Kind.DRAFT),
        project_id=caller.project_id,
        created_at=now,
        workflow_id=workflow_id,
        version_id=version_id,
        definition=inline,
        definition_ref=ref,
    )


def _read_wire(row: WorkflowRow, version_id: str, read: ReadValue) -> RegisteredWorkflow:
    if read.damage is None:
        return _wire(row.id, row.name, version_id, read.value)
    damage = damage_of({"blocks": read})
    return RegisteredWorkflow(
        id=row.id, name=row.name, version_id=version_id, blocks=None, damage=damage
    )


def _wire(
    identifier: str, name: str, version_id: str, definition: Mapping[str, Any]
) -> RegisteredWorkflow:
    return RegisteredWorkflow(
        id=identifier, name=name, version_id=version_id, blocks=blocks_of(definition)
    )


@dataclass(frozen=True, slots=True)
class Draft:
    """The definition of a workflow that is edited."""

    workflow_id: str
    version_id: str
    read: ReadValue

    @property
    def definition(self) -> Mapping[str, Any]:
        """The definition; empty if it cannot be read."""
        return self.read.value or {}

    @property
    def blocks(self) -> Mapping[str, Mapping[str, Any]]:
        """The blocks by their ids."""
        blocks: Mapping[str, Mapping[str, Any]] = self.definition.get("blocks") or {}
        return blocks

    def output_schemas(self, block_id: str) -> dict[str, dict[str, Any] | None] | None:
        """Return the schemas of a block's output handles; None if there is no such block."""
        block = self.blocks.get(block_id)
        if block is None:
            return None
        return {handle.handle_id: handle.schema_ for handle in output_handles(block)}


async def read_drafts(
    parts: Parts, session: AsyncSession, caller: Caller, workflow_ids: Sequence[str]
) -> dict[str, Draft]:
    """Return the drafts of the caller's workflows by their ids; those deleted are left out.

    A draft that cannot be read is empty, and says so.
    """
    bound = {"ids": [*workflow_ids], "project_id": caller.project_id}
    rows = (await session.execute(_drafts(), bound)).all()
    values = await parts.payloads.read([(row.definition, row.definition_ref) for row in rows])
    return {
        row.workflow_id: Draft(row.workflow_id, row.version_id, read)
        for row, read in zip(rows, values, strict=True)
    }


@cache
def _drafts() -> Select[Any]:
    versions = WorkflowVersionRow
    named = and_(
        WorkflowRow.id == versions.workflow_id, WorkflowRow.draft_id == versions.version_id
    )
    return (
        select(
            versions.workflow_id, versions.version_id, versions.definition, versions.definition_ref
        )
        .join(WorkflowRow, named)
        .where(
            WorkflowRow.id.in_(bindparam("ids", expanding=True)),
            WorkflowRow.project_id == bindparam("project_id"),
            WorkflowRow.deleted_at.is_(None),
        )
    )


async def read_draft(
    parts: Parts, session: AsyncSession, caller: Caller, workflow_id: str
) -> Draft:
    """Return the draft of a workflow. Raises `ServiceError` 404, and `DamagedPayloadError`."""
    drafts = await read_drafts(parts, session, caller, [workflow_id])
    if workflow_id not in drafts:
        raise not_found("workflow", workflow_id)
    draft = drafts[workflow_id]
    if draft.read.damage is not None:
        raise DamagedPayloadError(f"the draft of '{workflow_id}': {draft.read.damage}")
    return draft
