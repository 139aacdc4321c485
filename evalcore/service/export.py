"""A workflow with its saved evals as a whole, for files of format `workflow-evals`."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import undefer

from evalcore.formats.saved_evals import FileEval
from evalcore.service.models import ExportedWorkflow
from evalcore.service.requests import CurrentContext, WorkflowsRoute
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import EvalRevisionRow, EvalRow
from evalcore.service.workflows import find_workflow, read_draft

router = routes_of("/v1/workflows", "workflows", WorkflowsRoute)


@router.get("/{workflow_id}/export")
async def export(workflow_id: str, context: CurrentContext) -> ExportedWorkflow:
    """Return the draft and all saved evals with their frozen inputs, oldest first."""
    async with context.database.reading() as session:
        workflow = await find_workflow(session, workflow_id)
        draft = await read_draft(session, workflow_id)
        rows = await session.execute(
            select(EvalRow, EvalRevisionRow)
            .join(EvalRevisionRow, EvalRow.revision_id == EvalRevisionRow.id)
            .where(EvalRow.workflow_id == workflow_id, EvalRow.deleted_at.is_(None))
            .order_by(EvalRow.number)
            .options(undefer(EvalRevisionRow.handle_inputs))
        )
        evals = [_file_eval(saved, revision) for saved, revision in rows]
    return ExportedWorkflow(name=workflow.name, workflow=draft.definition, evals=evals)


def _file_eval(saved: EvalRow, revision: EvalRevisionRow) -> FileEval:
    return FileEval.model_validate(
        {
            "id": saved.id,
            "name": saved.name or None,
            "target": {"type": "block", "block_id": revision.block_id},
            "source": {"type": "manual", "handle_inputs": revision.handle_inputs},
            "assertion": revision.assertion,
        }
    )
