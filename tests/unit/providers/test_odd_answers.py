"""Answers of models as some servers write them, and as none should."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Reply, Request
from evalcore.providers.anthropic import AnthropicStream
from evalcore.providers.openai import OpenAIStream
from evalcore.providers.registry import open_session, send
from evalcore.providers.transport import Received, ServerSent
from tests.unit.providers.asking import HELLO, KEY

URL = "http://localhost/v1/chat/completions"
REQUEST = Request(Endpoint("openai", "local", "http://localhost/v1"), model="m", messages=HELLO)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def whole(message: dict[str, Any]) -> Reply:
    body = orjson.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    return OpenAIStream(REQUEST, URL).whole_reply(Received(200, {}, body, None, 1.0))


def streamed(*choices: dict[str, Any]) -> Reply:
    stream = OpenAIStream(REQUEST, URL)
    for choice in choices:
        stream.take(ServerSent("", orjson.dumps({"choices": [choice]}), 1.0))
    stream.take(ServerSent("", b"[DONE]", 2.0))
    return stream.reply(3.0)


def answered(message: dict[str, Any], *, stream: bool) -> Reply:
    return streamed({"delta": message}) if stream else whole(message)


@BOTH
@pytest.mark.parametrize(
    "message",
    [
        {"content": 5},
        {"content": {"text": "hello"}},
        {"refusal": True},
        {"content": "hello", "tool_calls": "look_up"},
        {"content": "hello", "tool_calls": {"id": "a"}},
        {"content": "hello", "tool_calls": 5},
        {"content": "hello", "tool_calls": [None]},
    ],
)
def test_a_message_of_another_shape_is_no_answer(message: dict[str, Any], stream: bool) -> None:
    with pytest.raises(ProviderError, match="has another shape") as caught:
        answered(message, stream=stream)

    assert caught.value.kind == ErrorKind.SERVER
    assert caught.value.retryable


@BOTH
def test_a_message_of_null_fields_is_an_empty_answer(stream: bool) -> None:
    reply = answered({"content": None, "refusal": None, "tool_calls": None}, stream=stream)

    assert (reply.text, reply.tool_calls) == ("", ())


@BOTH
def test_arguments_that_are_no_text_are_taken_as_they_are(stream: bool) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "look_up", "arguments": {"days": 3}}}

    reply = answered({"tool_calls": [call]}, stream=stream)

    assert reply.tool_calls == ({"id": "a", "name": "look_up", "arguments": {"days": 3}},)


def test_a_stream_without_an_answer_is_an_error_of_the_server() -> None:
    with pytest.raises(ProviderError, match="ended without") as caught:
        streamed()

    assert caught.value.kind == ErrorKind.SERVER


def test_calls_that_are_all_counted_as_the_first_stay_apart() -> None:
    pieces = [("a", "look_up", '{"days":'), (None, None, "3}"), ("b", "send", "{}"), ("b", "", "")]

    reply = streamed(
        *(
            {"delta": {"tool_calls": [{"index": 0, "id": id_, "function": function}]}}
            for id_, name, arguments in pieces
            for function in [{"name": name, "arguments": arguments}]
        )
    )

    assert reply.tool_calls == (
        {"id": "a", "name": "look_up", "arguments": {"days": 3}},
        {"id": "b", "name": "send", "arguments": {}},
    )


STARTED = {"type": "message_start", "message": {"model": "m"}}
STOPPED = {"type": "message_stop"}


def streamed_by_anthropic(*events: dict[str, Any]) -> Reply:
    stream = AnthropicStream(REQUEST, URL)
    for event in events:
        stream.take(ServerSent("", orjson.dumps(event), 1.0))
    return stream.reply(3.0)


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


def test_a_stream_of_anthropic_that_only_stops_is_an_error_of_the_server() -> None:
    with pytest.raises(ProviderError, match="ended without") as caught:
        streamed_by_anthropic(STOPPED)

    assert caught.value.kind == ErrorKind.SERVER
    assert streamed_by_anthropic(STARTED, STOPPED).text == ""


def sent_by(protocol: str, events: list[str], charset: str = "utf-8") -> list[bytes]:
    """Return what a server of this protocol sends: a text in one event for each of its pieces."""
    if protocol == "openai":
        lines = [f'{{"choices": [{{"delta": {{"content": {piece}}}}}]}}' for piece in events]
        ended = ["[DONE]"]
    else:
        delta = '{{"type": "content_block_delta", "delta": {{"type": "text_delta", "text": {}}}}}'
        lines = ['{"type": "message_start"}', *(delta.format(piece) for piece in events)]
        ended = ['{"type": "message_stop"}']
    return [line.encode(charset) for line in (*lines, *ended)]


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("pieces", "text", "is_noted"),
    [
        (['"half \\ud83d"'], "half \ufffd", True),
        (['"a \\ud83d"', '"\\ude00"'], "a 😀", False),
        (['"é"'], "é", False),
        (['"x", "logprob": NaN'], "x", True),
        (['"x", "logprob": -Infinity'], "x", True),
    ],
    ids=["half of a pair", "a pair in two events", "not ASCII", "NaN", "infinite"],
)
def test_a_streamed_answer_is_read_as_its_program_reads_it(
    protocol: str, pieces: list[str], text: str, is_noted: bool
) -> None:
    body = b"".join(b"data: " + line + b"\n\n" for line in sent_by(protocol, pieces))

    reply = served(protocol, body, "text/event-stream", stream=True)

    assert reply.text == text
    assert "U+FFFD" in "".join(reply.notes) if "\ufffd" in text else True
    assert bool(reply.notes) is (is_noted or len(pieces) > 1)
    orjson.dumps([event.data for event in reply.events])


WHOLE = {
    "openai": '{{"choices": [{{"message": {{"content": {text}}}}}], "usage": {usage}}}',
    "anthropic": '{{"content": [{{"type": "text", "text": {text}}}], "usage": {usage}}}',
}


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("written", "kind", "charset", "text"),
    [
        ('"half \\ud83d"', "application/json", "utf-8", "half \ufffd"),
        ('"Lima", "x": NaN', "application/json", "utf-8", "Lima"),
        ('"Lima"', "application/json", "utf-8-sig", "Lima"),
        ('"é"', "application/json; charset=iso-8859-1", "utf-8", "é"),
        ('"é"', "application/json; charset=utf-16", "utf-16", "é"),
        ('"é"', "application/json", "iso-8859-1", "\ufffd"),
    ],
    ids=[
        "half of a pair",
        "NaN",
        "byte order mark",
        "wrongly declared",
        "UTF-16",
        "undeclared",
    ],
)
def test_a_whole_answer_is_read_as_its_program_reads_it(
    protocol: str, written: str, kind: str, charset: str, text: str
) -> None:
    usage = '{"prompt_tokens": NaN, "input_tokens": NaN}'
    body = WHOLE[protocol].format(text=written, usage=usage).encode(charset)

    reply = served(protocol, body, kind)

    assert (reply.text, reply.usage.input_tokens) == (text, None)


def served(protocol: str, body: bytes, kind: str, **fields: Any) -> Reply:
    """Return what a request gets from a server that sends this body."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": kind})

    async def asked() -> Reply:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        async with TestServer(app) as server, open_session() as session:
            endpoint = Endpoint(protocol, protocol, str(server.make_url("/v1")), KEY)
            return await send(session, Request(endpoint, model="m", messages=HELLO, **fields))

    return asyncio.run(asked())
