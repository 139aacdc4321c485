"""The latency of an answer is the time of the server and the wire, not of the event loop."""

from __future__ import annotations

import asyncio

from evalcore.model.exchange import Endpoint, Reply, Request
from evalcore.providers.registry import open_session, send
from tests.support.model_server import model_server
from tests.unit.providers.asking import HELLO

BLOCKED_S = 1.5
LATENCY_S = 0.05


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
