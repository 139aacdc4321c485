"""The version of a workflow that a run of the service executes."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.errors import EvalError
from evalcore.service.database.tables import EvalRunRow, WorkflowRunRow, WorkflowVersionRow


async def version_of(session: AsyncSession, run: EvalRunRow | WorkflowRunRow) -> WorkflowVersionRow:
    """Return the version of a run; raise `EvalError` if it does not exist."""
    version = await session.scalar(
        select(WorkflowVersionRow).where(
            WorkflowVersionRow.workflow_id == run.workflow_id,
            WorkflowVersionRow.version_id == run.version_id,
        )
    )
    if version is None:
        raise EvalError(f"workflow version '{run.version_id}' does not exist")
    return version
