"""Where requests come from: this machine, and web pages of other origins."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import JSONResponse

from evalcore.service.failure import ServiceError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_foreign_pages(request: Request) -> None:
    """Raise `ServiceError` 403 for a request of a web page of another origin."""
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers.get("host", ""):
        raise ServiceError(403, "requests of web pages of other origins are refused")


def refuse_foreign_hosts(request: Request, allowed_hosts: Collection[str]) -> None:
    """Raise `ServiceError` 403 for a host that is neither a loopback address nor allowed.

    A name that is rebound to this machine makes a web page's own origin of it.
    """
    host = _hostname(request.headers.get("host", ""))
    if not is_loopback(host) and host not in allowed_hosts:
        raise ServiceError(
            403,
            "without tokens the header 'Host' has to name a loopback address, or one of "
            "`evalcore serve --allowed-host NAME`",
        )


class OpenGuard:
    """ASGI middleware of a service without tokens: no web page can drive or read it."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            request = Request(scope)
            try:
                refuse_foreign_hosts(request, self._allowed_hosts)
                refuse_foreign_pages(request)
            except ServiceError as error:
                refusal = JSONResponse({"detail": error.detail}, error.status_code)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
