"""Requests to an application in this process, through its routes as over HTTP.

Tokens, scopes, rates and the audit log are those of the REST interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from evalcore.service.errors import ServiceError
from evalcore.service.mcp.tools import ToolRequest


class ApplicationExchange:
    """Sends the requests of tools to an application."""

    def __init__(self, application: FastAPI) -> None:
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def send(self, request: ToolRequest, headers: Mapping[str, str] | None = None) -> Any:
        """Return the content of a response, None without one.

        Raises `ServiceError` for a response that is not 2xx.
        """
        response = await self._http.request(
            request.method,
            request.path,
            params=dict(request.query),
            content=request.body,
            headers={"Content-Type": "application/json", **request.headers, **(headers or {})},
        )
        if not response.is_success:
            raise ServiceError(response.status_code, _detail(response))
        return response.json() if response.content else None


def _detail(response: httpx.Response) -> Any:
    try:
        return response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.text[:500] or f"the service answers {response.status_code}"
