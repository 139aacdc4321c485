"""The latency of an answer is the time of the server and the wire, not of the event loop."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from evalcore.model.exchange import Endpoint, Reply, Request
from evalcore.providers.registry import open_session, send
from tests.support.model_server import model_server
from tests.unit.providers.asking import HELLO

BLOCKED_S = 1.5
LATENCY_S = 0.05


async def _asked_in_a_blocked_loop(url: str, *, stream: bool) -> Reply:
    request = Request(Endpoint("openai", "m", url), model="m", messages=HELLO, stream=stream)
    async with open_session() as session:
        await send(session, request)
        call = asyncio.create_task(send(session, request))
        await asyncio.sleep(LATENCY_S / 2)
        time.sleep(BLOCKED_S)
        return await call


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when bytes came in")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_loop_that_is_busy_is_no_part_of_the_latency(stream: bool) -> None:
    with model_server(latency_s=LATENCY_S) as server:
        reply = asyncio.run(_asked_in_a_blocked_loop(server.base_url, stream=stream))
    assert LATENCY_S * 1000 - 10 < reply.latency_ms < BLOCKED_S * 1000
    assert round(reply.latency_ms, 1) == reply.latency_ms
    if stream:
        assert reply.ttft_ms is not None
        assert reply.ttft_ms <= reply.latency_ms


def test_the_connection_is_no_part_of_the_latency() -> None:
    """Two calls that wait for a proxy of their name, as it were: the handshake is not measured."""

    async def asked(url: str) -> Reply:
        request = Request(Endpoint("openai", "m", url), model="m", messages=HELLO)
        async with open_session() as session:
            connect = session.connector.connect  # type: ignore[union-attr]

            async def slowly(*args: object, **options: object) -> object:
                await asyncio.sleep(BLOCKED_S)
                return await connect(*args, **options)  # type: ignore[arg-type]

            session.connector.connect = slowly  # type: ignore[union-attr,method-assign]
            return await send(session, request)

    with model_server(latency_s=LATENCY_S) as server:
        assert asyncio.run(asked(server.base_url)).latency_ms < BLOCKED_S * 1000
