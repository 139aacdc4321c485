"""`/v1/files`, which inputs refer to: bytes in the object store, a row that describes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import File, Request, Response, UploadFile
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.errors import ObjectNotFoundError
from evalcore.service.errors import ServiceError, mistake
from evalcore.service.models import StoredFile
from evalcore.service.requests import CurrentContext, find_row
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import FileRow, Kind, new_id

_MIME_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,99}")

router = routes_of("/v1/files", "files")


@router.post("", status_code=201)
async def upload(
    file: Annotated[UploadFile, File(description="The file, as multipart/form-data.")],
    request: Request,
    context: CurrentContext,
) -> StoredFile:
    """Store a file; inputs refer to it by its id."""
    names = [name for name, _ in (await request.form()).multi_items()]
    if names != ["file"]:
        extra = next((name for name in names if name != "file"), "file")
        raise mistake(["body", extra], "expected one file, in the field 'file', and nothing else")
    data = await file.read(context.max_body_bytes + 1)
    if len(data) > context.max_body_bytes:
        raise ServiceError(413, f"the file is larger than {context.max_body_bytes} bytes")
    filename, mime_type = _shown_name(file.filename or ""), file.content_type
    is_type = mime_type is not None and _MIME_TYPE.fullmatch(mime_type)
    digest = hashlib.sha256(data).hexdigest()
    # Its name is only shown: objects are named by their content.
    key = f"service/files/{digest}"
    await context.from_store(context.check_store)
    await context.from_store(context.store.put, key, data)
    row = FileRow(
        id=new_id(Kind.FILE),
        created_at=datetime.now(UTC),
        filename=filename,
        mime_type=mime_type if is_type else "application/octet-stream",
        size=len(data),
        sha256=digest,
        object_key=key,
    )
    async with context.database.transaction() as session:
        session.add(row)
    return _wire(row)


@router.get("/{file_id}")
async def get(file_id: str, context: CurrentContext) -> StoredFile:
    """Return what is known of a file."""
    async with context.database.reading() as session:
        return _wire(await find_row(session, FileRow, file_id, "file"))


@router.get("/{file_id}/content", response_class=Response)
async def content(file_id: str, context: CurrentContext) -> Response:
    """Return a file's bytes, as a download."""
    async with context.database.reading() as session:
        row = await find_row(session, FileRow, file_id, "file")
    try:
        data = (await context.from_store(context.store.get, row.object_key)).data
    except ObjectNotFoundError:
        await context.from_store(context.check_store)
        data = b""
    if hashlib.sha256(data).hexdigest() != row.sha256:
        raise ServiceError(
            409,
            f"the content of '{file_id}' is missing from the store, or is not what was uploaded: "
            "restore it from a backup, or upload it again",
        )
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(row.filename)}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(data, media_type=row.mime_type, headers=headers)


async def find_files(session: AsyncSession, file_ids: Collection[str]) -> dict[str, FileRow]:
    """Return the files among these ids."""
    if not file_ids:
        return {}
    rows = await session.scalars(select(FileRow).where(FileRow.id.in_(file_ids)))
    return {row.id: row for row in rows}


def _wire(row: FileRow) -> StoredFile:
    return StoredFile(
        id=row.id,
        filename=row.filename,
        mime_type=row.mime_type,
        size=row.size,
        sha256=row.sha256,
    )


def _shown_name(filename: str) -> str:
    """Return a file's name without folders and control characters. Raises `ServiceError` 422."""
    name = re.split(r"[/\\]", filename)[-1]
    name = "".join(character for character in name if character.isprintable()).strip()[:500]
    if not name or name in {".", ".."}:
        raise mistake(["body", "file", "filename"], "the file has no name")
    return name
