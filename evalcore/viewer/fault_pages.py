"""The page of a fault that no page expects: the reason is logged, and not shown to the browser."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalcore.redaction.redactor import cover_exception
from evalcore.viewer.rendering import render
from evalcore.viewer.site import site_of

_LOG: Final = logging.getLogger("evalcore.viewer")


class FaultPages:
    """ASGI middleware that answers with a page where a route raised something unexpected."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; show a page with status 500 if it fails before its answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        # Every fault of ours: the browser gets a page, the log the reason.
        except Exception as error:
            cover_exception(error)
            _LOG.exception("%s %s: unexpected fault", scope["method"], scope["path"])
            if has_begun:
                raise
            request = Request(scope, receive)
            page = render(
                request,
                await site_of(request),
                "failure.html.j2",
                status=500,
                title="This page has a fault",
                message=f"{type(error).__name__}: the reason stands in the log of the server.",
            )
            await page(scope, receive, send)
