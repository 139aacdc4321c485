"""Plain HTTP: a request whose body is the reply, public addresses only, a server for loopback."""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from evalcore.jsonvalues import decoded
from evalcore.model.exchange import ErrorKind, ProviderError, Reply, Request
from evalcore.providers.failures import failed
from evalcore.providers.registry import open_session
from evalcore.providers.transport import Received, Sent, exchange, json_body
from evalcore.trust.network import is_allowed_address, is_public


class PublicAddresses(ThreadedResolver):
    """Resolves names to public addresses; connections are made to what was checked.

    `allowed` are addresses, with everything below them, that may be called wherever they lead.
    `refused` makes the error of a reason.
    """

    def __init__(self, allowed: Collection[str], refused: Callable[[str], ProviderError]) -> None:
        super().__init__()
        self._allowed = allowed
        self._refused = refused
        self._is_allowed = False

    def session(self) -> aiohttp.ClientSession:
        """Return a session for one request and its redirects; no connection is used again."""
        return open_session(resolver=self, force_close=True, use_dns_cache=False)

    def admit(self, url: str) -> bool:
        """Prepare for a request to `url`; raise `ProviderError` for one that may not be called.

        Return whether a proxy may be asked: it would resolve the name once more.
        """
        try:
            sent = URL(url)  # as the session reads it: digits of full width are digits
        except ValueError as error:
            raise self._refused(f"'{url}' is no URL that can be called: {error}") from error
        self._is_allowed = is_allowed_address(str(sent), self._allowed)
        host = sent.host or ""
        with suppress(ValueError):  # a name is resolved when the connection is made
            self._check(host, [str(ipaddress.ip_address(host))])
        return self._is_allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raise `ProviderError` if one is not public."""
        results = await super().resolve(host, port, family)
        self._check(host, [result["host"] for result in results])
        return results

    def _check(self, host: str, addresses: Collection[str]) -> None:
        if not self._is_allowed and not all(map(is_public, addresses)):
            reason = "is not a public address (EVALCORE_ALLOW_ADDRESSES allows it)"
            raise self._refused(f"'{host}' {reason}")


LARGEST_REQUEST = 8 << 20


# Status and JSON value for a path and a request's JSON value.
Answers = Callable[[str, Any], Awaitable[tuple[int, Any]]]


class LoopbackServer(NamedTuple):
    """Where a server listens, and the token that its requests have to carry."""

    url: str
    token: str


@asynccontextmanager
async def loopback_server(answers: Mapping[str, Answers]) -> AsyncIterator[LoopbackServer]:
    """Serve JSON at 127.0.0.1 on a free port until the block ends.

    `answers` has a function for each `METHOD /path`; it gets the path and the request's JSON value
    (None without a body). Requests without `Authorization: Bearer TOKEN` are refused with 401,
    unknown ones with 404, bodies that are no JSON with 400.
    """
    from aiohttp import web

    token = secrets.token_hex(32)

    async def respond(request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        if not secrets.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            return _response(401, {"error": "Unauthorized"})
        handler = answers.get(f"{request.method} {request.path}")
        if handler is None:
            return _response(404, {"error": "Not found"})
        body = await request.read()
        try:
            value = json.loads(body) if body else None
        except (ValueError, RecursionError):
            return _response(400, {"error": "The request's body is no JSON"})
        return _response(*await handler(request.path, value))

    def _response(status: int, body: Any) -> web.Response:
        return web.json_response(body, status=status)

    app = web.Application(client_max_size=LARGEST_REQUEST)
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield LoopbackServer(f"http://127.0.0.1:{port}", token)
    finally:
        await runner.cleanup()


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:
    """Return the answer's body as text; raise `ProviderError` for a status of 300 or more.

    A body that is not text is sent as JSON. Redirects are not followed where
    secret headers, or a URL with a secret in it, would go with them (transport.redirected).
    """
    parameters = request.parameters
    url = request.endpoint.filled(str(parameters.get("url") or request.endpoint.base_url))
    body, headers = _body_of(request, url, parameters.get("body"))
    public = {str(name): str(value) for name, value in (parameters.get("headers") or {}).items()}
    headers = _laid_over(_laid_over(headers, public), request.endpoint.headers)
    method = str(parameters.get("method") or ("GET" if body is None else "POST")).upper()
    secret = bool(request.endpoint.headers or request.endpoint.values)
    if any(reference == value for reference, value in request.endpoint.values.items()):
        what = "a variable of its headers or address is not set in this process"
        raise failed(request.endpoint, url, ErrorKind.REQUEST, what)
    sent = Sent(method, url, headers, body, follow=not secret)
    received = await _received(session, request, sent)
    return Reply(
        text=decoded(received.body, received.charset),
        latency_ms=received.latency_ms,
        status=received.status,
    )


async def _received(session: aiohttp.ClientSession, request: Request, sent: Sent) -> Received:
    if request.allowed_addresses is None:
        return await exchange(session, request, sent)
    addresses = PublicAddresses(
        request.allowed_addresses,
        lambda what: failed(request.endpoint, sent.url, ErrorKind.REQUEST, what),
    )
    async with addresses.session() as own:
        return await exchange(own, request, sent, admit=addresses.admit)


def _body_of(request: Request, url: str, body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), {"Content-Type": "text/plain; charset=utf-8"}
    return json_body(request, url, body), {"Content-Type": "application/json"}


def _laid_over(headers: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower() for name in over}
    return {**{name: value for name, value in headers.items() if name.lower() not in named}, **over}
