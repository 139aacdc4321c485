"""HEAD of answers that are streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Message

from evalcore.viewer.head_requests import HeadRequests


async def _endless() -> AsyncIterator[bytes]:
    yield b"event: look\n\n"
    await asyncio.Event().wait()


def test_head_of_a_stream_ends_with_the_head_of_its_answer() -> None:
    sent: list[Message] = []

    async def ask() -> None:
        is_answered = asyncio.Event()

        async def receive() -> Message:
            await is_answered.wait()  # as servers do, whose clients leave then
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            assert not is_answered.is_set()
            sent.append(message)
            if message["type"] == "http.response.body" and not message["more_body"]:
                is_answered.set()

        stream = StreamingResponse(_endless(), media_type="text/event-stream")
        scope = {"type": "http", "method": "HEAD", "asgi": {"spec_version": "2.3"}}
        async with asyncio.timeout(60):
            await HeadRequests(stream)(scope, receive, send)

    asyncio.run(ask())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"")
