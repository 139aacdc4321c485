"""The current drafts of workflows, which drift and freshness are computed against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.access.tokens import Caller
from evalcore.service.database.tables import WorkflowRow, WorkflowVersionRow
from evalcore.service.failure import not_found
from evalcore.service.handles import output_handles
from evalcore.service.parts import Parts
from evalcore.service.payloads import DamagedPayloadError, ReadValue


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
