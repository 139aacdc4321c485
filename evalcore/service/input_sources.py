"""The inputs of a saved eval: as the caller gives them, or copied from an earlier workflow run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import select

from evalcore.checks.conditions import FileHandle, Handle
from evalcore.service.access.tokens import Caller
from evalcore.service.database.tables import WorkflowRunRow, WorkflowStepRow
from evalcore.service.failure import ServiceError, lacking, mistake, not_found
from evalcore.service.files import find_files
from evalcore.service.parts import Parts
from evalcore.service.wire.evals import ManualSource, RunStepSource
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
