"""HEAD requests: the answer of GET without its body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """ASGI middleware that lets each page that has GET answer HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; of HEAD as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            # The answer ends with its head: a stream of events would end a minute later.
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # The server and the log read the method, too: their own scope stays as it is.
        inner = {**scope, "method": "GET"}
        try:
            await self._app(inner, receive, send_head)
        finally:
            scope.update({key: inner[key] for key in ("route", "state") if key in inner})
