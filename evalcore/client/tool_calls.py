"""The calls of tools as requests of a client, for `evalcore mcp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalcore.client.calls import Call
from evalcore.client.clients import AsyncClient
from evalcore.client.failure import ServiceRefusedError
from evalcore.errors import UsageError
from evalcore.service.errors import ServiceError
from evalcore.service.mcp.tools import ToolRequest

if TYPE_CHECKING:
    from starlette.requests import Request


class RemoteService:
    """A running service that tools are called on."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def perform(self, request: ToolRequest, _: Request | None = None) -> Any:
        """Return the content of the response, None without one.

        Raises `ServiceError` with what the service says, 503 if it does not answer.
        """
        call: Call[Any] = Call(
            request.method,
            request.path,
            None if request.method == "DELETE" else dict[str, Any],
            request.query,
            request.body,
            request.headers,
        )
        try:
            return await self._client.send(call)
        except ServiceRefusedError as error:
            raise ServiceError(error.status, error.detail) from error
        except UsageError as error:
            raise ServiceError(503, str(error)) from error
