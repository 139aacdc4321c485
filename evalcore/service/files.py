"""Files that inputs refer to: bytes in the object store, a row that describes them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.errors import ObjectNotFoundError
from evalcore.service.auth import Caller
from evalcore.service.context import DamagedPayloadError, Parts
from evalcore.service.errors import mistake, not_found
from evalcore.service.models import StoredFile
from evalcore.service.tables import FileRow, Kind, new_id

_PREFIX: Final = "service/files"
_MIME_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,99}")
UNKNOWN_TYPE: Final = "application/octet-stream"


async def store_file(
    parts: Parts, caller: Caller, filename: str, mime_type: str | None, data: bytes
) -> StoredFile:
    """Store a file. Its name is only shown: objects are named by their content."""
    named = _shown_name(filename)
    typed = mime_type if mime_type and _MIME_TYPE.fullmatch(mime_type) else UNKNOWN_TYPE
    digest = hashlib.sha256(data).hexdigest()
    key = f"{_PREFIX}/{caller.project_id}/{digest}"
    await parts.objects.put(key, data)
    row = FileRow(
        id=new_id(Kind.FILE),
        project_id=caller.project_id,
        created_at=datetime.now(UTC),
        filename=named,
        mime_type=typed,
        size=len(data),
        sha256=digest,
        object_key=key,
    )
    async with parts.database.transaction() as session:
        session.add(row)
    return file_wire(row)


async def get_file(parts: Parts, caller: Caller, file_id: str) -> StoredFile:
    """Return what is known of a file. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        return file_wire(await find_file(session, caller, file_id))


async def file_content(parts: Parts, caller: Caller, file_id: str) -> tuple[StoredFile, bytes]:
    """Return a file and its bytes. Raises `ServiceError` 404, and `DamagedPayloadError`."""
    async with parts.database.reading() as session:
        row = await find_file(session, caller, file_id)
    try:
        data = await parts.objects.get(row.object_key)
    except ObjectNotFoundError:
        await parts.objects.check()
        raise DamagedPayloadError(f"the content of '{file_id}' is missing from the store") from None
    if hashlib.sha256(data).hexdigest() != row.sha256:
        raise DamagedPayloadError(f"the content of '{file_id}' is not what was uploaded")
    return file_wire(row), data


async def find_file(session: AsyncSession, caller: Caller, file_id: str) -> FileRow:
    """Return a file of the caller's project. Raises `ServiceError` 404."""
    rows = await find_files(session, caller, [file_id])
    if file_id not in rows:
        raise not_found("file", file_id)
    return rows[file_id]


async def find_files(
    session: AsyncSession, caller: Caller, file_ids: Sequence[str]
) -> dict[str, FileRow]:
    """Return the files of the caller's project among these ids."""
    rows = await session.scalars(
        select(FileRow).where(FileRow.id.in_(file_ids), FileRow.project_id == caller.project_id)
    )
    return {row.id: row for row in rows}


def file_wire(row: FileRow) -> StoredFile:
    """Return a file as the wire shows it."""
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
