"""`/mcp`: the tools over streamable HTTP, with the bearer tokens of the REST interface.

Each request stands alone, without a session, so that any replica can answer it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import FastAPI, Request
from mcp import types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from evalcore.service.auth import refuse_foreign_pages
from evalcore.service.context import Parts
from evalcore.service.errors import ServiceError
from evalcore.service.mcp.exchange import ApplicationExchange
from evalcore.service.mcp.protocol import protocol_server
from evalcore.service.mcp.tools import ToolRequest
from evalcore.service.requests import caller_of

_CREDENTIALS: Final = "authorization"


class McpEndpoint:
    """The ASGI application at `/mcp`."""

    def __init__(self, application: FastAPI, parts: Parts) -> None:
        self._parts = parts
        self._exchange = ApplicationExchange(application)
        server = protocol_server(self._perform)
        server.middleware.append(self._limited)
        self._sessions = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            max_request_body_size=parts.max_body_bytes,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve requests in this context; it can be entered once."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises `ServiceError` 401, 403 and 405."""
        request = Request(scope, receive)
        refuse_foreign_pages(request)
        request.state.caller = await caller_of(self._parts, request)
        if request.method != "POST":
            raise ServiceError(405, "this server has no streams and no sessions: use POST")
        await self._sessions.handle_request(scope, receive, send)

    async def _perform(self, tool_request: ToolRequest, request: Request | None) -> Any:
        assert request is not None  # noqa: S101 - every message comes with an HTTP request
        written = request.headers.get(_CREDENTIALS)
        headers = {} if written is None else {_CREDENTIALS: written}
        return await self._exchange.send(tool_request, headers)

    async def _limited(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Limit the rate of messages; the routes limit the calls of tools."""
        if ctx.method != "tools/call" and ctx.request is not None:
            try:
                self._parts.rates.spend(ctx.request.state.caller.token_id or "")
            except ServiceError as error:
                raise MCPError(types.INVALID_REQUEST, str(error.detail)) from None
        return await call_next(ctx)
