"""`/v1/files`: files that inputs refer to."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, File, Request, Response, UploadFile

from evalcore.service import files
from evalcore.service.errors import REFUSALS, ServiceError, mistake
from evalcore.service.models import StoredFile
from evalcore.service.requests import CurrentCaller, CurrentParts, StrictRoute

router = APIRouter(prefix="/v1/files", tags=["files"], route_class=StrictRoute, responses=REFUSALS)


@router.post("", status_code=201)
async def upload(
    file: Annotated[UploadFile, File(description="The file, as multipart/form-data.")],
    request: Request,
    parts: CurrentParts,
    caller: CurrentCaller,
) -> StoredFile:
    """Store a file; inputs refer to it by its id."""
    names = [name for name, _ in (await request.form()).multi_items()]
    if names != ["file"]:
        extra = next((name for name in names if name != "file"), "file")
        raise mistake(["body", extra], "expected one file, in the field 'file', and nothing else")
    data = await file.read(parts.max_body_bytes + 1)
    if len(data) > parts.max_body_bytes:
        raise ServiceError(413, f"the file is larger than {parts.max_body_bytes} bytes")
    return await files.store_file(parts, caller, file.filename or "", file.content_type, data)


@router.get("/{file_id}")
async def get(file_id: str, parts: CurrentParts, caller: CurrentCaller) -> StoredFile:
    """Return what is known of a file."""
    return await files.get_file(parts, caller, file_id)


@router.get("/{file_id}/content", response_class=Response)
async def content(file_id: str, parts: CurrentParts, caller: CurrentCaller) -> Response:
    """Return a file's bytes, as a download."""
    stored, data = await files.file_content(parts, caller, file_id)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(stored.filename)}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(data, media_type=stored.mime_type, headers=headers)
