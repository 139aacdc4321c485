"""Where requests come from: this machine, and web pages of other origins."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evalcore.service.failure import ServiceError

if TYPE_CHECKING:
    from fastapi import Request


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_foreign_pages(request: Request, *, only_loopback: bool) -> None:
    """Raise `ServiceError` 403 for a request of a web page of another origin.

    A name that is rebound to this machine makes a page's own origin: with `only_loopback` the
    request has to name a loopback address.
    """
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise ServiceError(403, "requests of web pages of other origins are refused")
    if only_loopback and not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise ServiceError(403, "the header 'Host' has to name a loopback address")
