"""A web server for a program that this process has started: loopback only, with a token."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

LARGEST_REQUEST = 8 << 20


class JsonAnswer(NamedTuple):
    """A status and a JSON value."""

    status: int
    body: Any


Answers = Callable[[str, Any], Awaitable[JsonAnswer]]


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
            return _response(JsonAnswer(401, {"error": "Unauthorized"}))
        handler = answers.get(f"{request.method} {request.path}")
        if handler is None:
            return _response(JsonAnswer(404, {"error": "Not found"}))
        body = await request.read()
        try:
            value = json.loads(body) if body else None
        except (ValueError, RecursionError):
            return _response(JsonAnswer(400, {"error": "The request's body is no JSON"}))
        return _response(await handler(request.path, value))

    def _response(answer: JsonAnswer) -> web.Response:
        return web.json_response(answer.body, status=answer.status)

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
