"""Redirects over real connections: each answer is left before the next one is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import aiohttp
import pytest

from evalcore.model.exchange import Endpoint, ProviderError, Request
from evalcore.providers.registry import send
from tests.support.servers import serving


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        location = {
            "/first": "/second",
            "/second": "/last",
            "/round": "/round",
            "/wrong": "http://[::1/",
        }.get(self.path)
        self.send_response(200 if location is None else 302)
        if location is not None:
            self.send_header("Location", location)
        body = b"the answer" if location is None else b"moved"
        # The rest of what says where it has moved never comes: it has to be left.
        self.send_header("Content-Length", str(len(body) if location is None else 100))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(_Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def ask_in_turn(address: str, *paths: str) -> list[str]:
    """Return what is answered or raised, one request after another over one connection."""

    async def ask() -> list[str]:
        heard = []
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            for path in paths:
                request = Request(
                    Endpoint("http", "site", address),
                    parameters={"url": address + path},
                    attempt_timeout_s=60,
                )
                try:
                    heard.append((await send(session, request)).text)
                except ProviderError as error:
                    heard.append(error.message)
        return heard

    return asyncio.run(ask())


def test_the_last_of_several_redirects_answers(address: str) -> None:
    assert ask_in_turn(address, "/first", "/first") == ["the answer", "the answer"]
