"""One request to the tests' own model server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Reply, Request
from evalcore.providers.registry import open_session, send
from tests.support.model_server import Failure, ModelServer, Script, model_server
from tests.support.model_wire import Answer, Question

KEY = "sk-very-secret-1234"
HELLO = ({"role": "user", "content": "hello you"},)


async def _sent(request: Request) -> Reply:
    async with open_session() as session:
        return await send(session, request)


def sent(endpoint: Endpoint, model: str = "m") -> Reply:
    """Return the reply of whoever listens at an endpoint."""
    return asyncio.run(
        _sent(Request(endpoint, model=model, messages=HELLO, attempt_timeout_s=20.0))
    )


def ask(server: ModelServer, protocol: str = "openai", **fields: Any) -> Reply:
    """Return the server's reply; `endpoint` may replace the usual one."""
    endpoint = fields.pop("endpoint", Endpoint(protocol, protocol, server.base_url, KEY))
    given = {"model": "m", "messages": HELLO, "attempt_timeout_s": 20.0, **fields}
    return asyncio.run(_sent(Request(endpoint, **given)))


def ask_for(answer: str | Answer | Failure | Script, protocol: str, **fields: Any) -> Reply:
    """Return the reply of a server that gives this answer."""

    def same(question: Question) -> str | Answer | Failure:
        return answer if not callable(answer) else answer(question)

    with model_server(script=same) as server:
        return ask(server, protocol, **fields)


def body_of(protocol: str, **fields: Any) -> dict[str, Any]:
    """Return the body that the server is sent."""
    with model_server() as server:
        ask(server, protocol, **fields)
        body: dict[str, Any] = server.requests[-1].body
        return body


def failure_of(answer: Failure | Script, protocol: str = "openai", **fields: Any) -> ProviderError:
    """Return the error that the server's answer becomes."""
    with pytest.raises(ProviderError) as caught:
        ask_for(answer, protocol, **fields)
    assert caught.value.kind in set(ErrorKind)
    return caught.value
