"""`/healthz`, `/readyz` and `/metrics`: for those who run the service. They need no token."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from sqlalchemy import text

from evalcore.service.errors import REFUSALS
from evalcore.service.metrics import CONTENT_TYPE, exposition
from evalcore.service.models import ResponseBody
from evalcore.service.requests import CurrentParts

router = APIRouter(tags=["operations"], responses={503: REFUSALS[503]})


class Health(ResponseBody):
    """That the process answers."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process answers."""
    return Health()


@router.get("/readyz")
async def readyz(parts: CurrentParts) -> Health:
    """Whether the database and the object store answer, too, and the store is still the same."""
    async with parts.database.reading() as session:
        await session.execute(text("SELECT 1"))
    await parts.objects.check()
    return Health()


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: CurrentParts) -> Response:
    """Counters and times in Prometheus' text format."""
    return Response(await exposition(parts.metrics, parts.database), media_type=CONTENT_TYPE)
