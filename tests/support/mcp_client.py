"""The SDK's client of the service's tools over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.service import Service

if TYPE_CHECKING:
    from mcp import Client


@asynccontextmanager
async def over_http(served: Service, mode: str = "auto") -> AsyncIterator[Client]:
    """Yield a client of the service's tools."""
    # The SDK's import takes longer than what most tests do; every test process collects all tests.
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {} if served.token is None else {"Authorization": f"Bearer {served.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client
