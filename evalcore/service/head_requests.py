"""HEAD, answered as GET is, without the body: what probes and clients of HTTP rely on."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ANSWERED: Final = ("/v1/", "/healthz", "/readyz", "/metrics")


class HeadRequests:
    """ASGI middleware: the routes see a GET, the client gets its status and its headers.

    The viewer's pages are left alone: one that follows a run has no end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection; only HEAD requests are changed."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or not scope["path"].startswith(_ANSWERED):
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        # The server reads the method, too: its own scope stays as it is.
        inner = {**scope, "method": "GET"}
        try:
            await self._app(inner, receive, without_body)
        finally:
            # What the log says of a request stands in them.
            scope.update({key: inner[key] for key in ("route", "state") if key in inner})
