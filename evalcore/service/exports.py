"""A workflow with its saved evals as a whole, for files of format `workflow-evals`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from evalcore.checks.conditions.eval_assertion import EvalAssertion
from evalcore.formats.workflow_evals.shapes import FileEval, FileSource, FileTarget
from evalcore.service.access.tokens import Caller
from evalcore.service.database.tables import EvalRevisionRow, EvalRow
from evalcore.service.drafts import read_draft
from evalcore.service.parts import Parts
from evalcore.service.payloads import DamagedPayloadError
from evalcore.service.wire.workflows import ExportedWorkflow
from evalcore.service.workflows import find_workflow


async def export_workflow(parts: Parts, caller: Caller, workflow_id: str) -> ExportedWorkflow:
    """Return a workflow's draft and its evals, oldest first.

    Raises `ServiceError` 404, and `DamagedPayloadError`: a file that lacks an eval is no export.
    """
    query = (
        select(EvalRow, EvalRevisionRow)
        .join(EvalRevisionRow, EvalRow.revision_id == EvalRevisionRow.id)
        .where(
            EvalRow.workflow_id == workflow_id,
            EvalRow.project_id == caller.project_id,
            EvalRow.deleted_at.is_(None),
        )
        .order_by(EvalRow.number)
    )
    async with parts.database.reading() as session:
        workflow = await find_workflow(session, caller, workflow_id)
        draft = await read_draft(parts, session, caller, workflow_id)
        rows = [*await session.execute(query)]
    inputs = await parts.payloads.read(
        [(revision.handle_inputs, revision.handle_inputs_ref) for _, revision in rows]
    )
    for (saved, _), read in zip(rows, inputs, strict=True):
        if read.damage is not None:
            raise DamagedPayloadError(f"the inputs of '{saved.id}': {read.damage}")
    evals = [
        _file_eval(saved, revision, read.value)
        for (saved, revision), read in zip(rows, inputs, strict=True)
    ]
    return ExportedWorkflow(name=workflow.name, workflow=dict(draft.definition), evals=evals)


def _file_eval(saved: EvalRow, revision: EvalRevisionRow, inputs: Mapping[str, Any]) -> FileEval:
    return FileEval(
        id=saved.id,
        name=saved.name or None,
        target=FileTarget(type="block", block_id=revision.block_id),
        source=FileSource.model_validate({"type": "manual", "handle_inputs": inputs}),
        assertion=EvalAssertion.model_validate(revision.assertion),
    )
