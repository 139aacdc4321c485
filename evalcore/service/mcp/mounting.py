"""The place of `/mcp` in the application, also where the SDK is not installed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Protocol

from fastapi import FastAPI
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from evalcore.service.context import Parts
from evalcore.service.errors import ServiceError

NEEDS_EXTRA: Final = "the MCP server needs the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"


class MountedEndpoint(Protocol):
    """An ASGI application that is served in a context."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve requests in this context."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""


class _McpRoute(Route):
    """A route that names itself, for the request log."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


class _Missing(MountedEndpoint):
    """The endpoint of a service without the SDK."""

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        raise ServiceError(501, NEEDS_EXTRA)


def mount_mcp(application: FastAPI, parts: Parts) -> MountedEndpoint:
    """Add `/mcp` to an application; without the SDK it answers 501 and says what to install."""
    endpoint: MountedEndpoint
    try:
        from evalcore.service.mcp.endpoint import McpEndpoint
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        endpoint = _Missing()
    else:
        endpoint = McpEndpoint(application, parts)
    application.router.routes.append(_McpRoute("/mcp", endpoint, include_in_schema=False))
    return endpoint
