"""A workflow with its saved evals as a whole, for files of format `workflow-evals`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Final, cast

import orjson
from sqlalchemy import select

from evalcore.checks.conditions import EvalAssertion
from evalcore.formats.saved_evals import FileEval, FileSource, FileTarget
from evalcore.service.auth import Caller
from evalcore.service.context import PAGE_BYTES, DamagedPayloadError, Parts
from evalcore.service.tables import EvalRevisionRow, EvalRow
from evalcore.service.workflows import find_workflow, read_draft

_ROWS_AT_ONCE: Final = 100
_CHUNK_BYTES: Final = 256 * 1024


async def export_workflow(parts: Parts, caller: Caller, workflow_id: str) -> BinaryIO:
    """Return an `ExportedWorkflow` as JSON: a workflow's draft and its evals, oldest first.

    The file has no name and stands at its beginning; the caller closes it. It is written before
    anything is answered, page by page, so a workflow of any size needs the memory of a page. Raises
    `ServiceError` 404, and `DamagedPayloadError`: a file that lacks an eval is no export.
    """
    async with parts.database.reading() as session:
        workflow = await find_workflow(session, caller, workflow_id)
        draft = await read_draft(parts, session, caller, workflow_id)
    file = cast("BinaryIO", SpooledTemporaryFile(max_size=PAGE_BYTES))  # noqa: SIM115 - returned
    try:
        head = orjson.dumps({"name": workflow.name, "workflow": draft.definition})
        file.write(head.removesuffix(b"}") + b',"evals":[')
        separator = b""
        async for evals in _pages(parts, caller, workflow_id):
            await asyncio.to_thread(_write, file, separator, evals)
            separator = b","
        file.write(b"]}")
        file.seek(0)
    except BaseException:  # also of a request that is cancelled
        file.close()
        raise
    return file


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in pieces, and close it at the end."""
    with file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


async def _pages(parts: Parts, caller: Caller, workflow_id: str) -> AsyncIterator[list[FileEval]]:
    """Yield the evals of a workflow; those of a page have `PAGE_BYTES` of inputs at the most."""
    query = (
        select(EvalRow, EvalRevisionRow)
        .join(EvalRevisionRow, EvalRow.revision_id == EvalRevisionRow.id)
        .where(
            EvalRow.workflow_id == workflow_id,
            EvalRow.project_id == caller.project_id,
            EvalRow.deleted_at.is_(None),
        )
        .order_by(EvalRow.number)
        .limit(_ROWS_AT_ONCE)
    )
    page = query
    while True:
        async with parts.database.reading() as session:
            rows = [*await session.execute(page)]
        inputs = await parts.payloads.read_rows(
            [[(revision.handle_inputs, revision.handle_inputs_ref)] for _, revision in rows]
        )
        evals = []
        for (saved, revision), (read,) in zip(rows, inputs, strict=False):
            if read.damage is not None:
                raise DamagedPayloadError(f"the inputs of '{saved.id}': {read.damage}")
            evals.append(_file_eval(saved, revision, read.value))
        if evals:
            yield evals
        if len(evals) == len(rows) < _ROWS_AT_ONCE:
            return
        page = query.where(EvalRow.number > rows[len(evals) - 1][0].number)


def _write(file: BinaryIO, separator: bytes, evals: Sequence[FileEval]) -> None:
    file.write(
        separator + b",".join(each.model_dump_json(by_alias=True).encode() for each in evals)
    )


def _file_eval(saved: EvalRow, revision: EvalRevisionRow, inputs: Mapping[str, Any]) -> FileEval:
    return FileEval(
        id=saved.id,
        name=saved.name or None,
        target=FileTarget(type="block", block_id=revision.block_id),
        source=FileSource.model_validate({"type": "manual", "handle_inputs": inputs}),
        assertion=EvalAssertion.model_validate(revision.assertion),
    )
