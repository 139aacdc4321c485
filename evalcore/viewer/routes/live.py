"""A run that goes on, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import orjson
from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from evalcore.viewer.live_runs import LiveRuns
from evalcore.viewer.site import CurrentSite

router = APIRouter()
# A browser asks again by itself, and its right to look is checked again.
_LONGEST_S: Final = 60.0
_AGAIN_MS: Final = 2_000


@router.get("/runs/{run_id}/events")
async def run_events(site: CurrentSite, run_id: str) -> StreamingResponse:
    """Send `look` events while the run goes on, and `ended` when it has; see `LiveRuns`."""
    entry = await asyncio.to_thread(site.catalogue.entry, run_id)
    if entry is None:
        raise HTTPException(404)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = _events(site.live, run_id)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(live: LiveRuns, run_id: str) -> AsyncIterator[bytes]:
    yield f"retry: {_AGAIN_MS}\n\n".encode()
    try:
        async with asyncio.timeout(_LONGEST_S), aclosing(live.follow(run_id)) as looks:
            async for look in looks:
                yield b"event: look\ndata: " + orjson.dumps(look) + b"\n\n"
    except TimeoutError:
        return
    if live.is_closing:
        return  # the browser asks again until the server is back
    yield b"event: ended\ndata: {}\n\n"
