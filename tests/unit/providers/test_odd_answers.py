"""Answers of models as some servers write them, and as none should."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Reply, Request
from evalcore.providers.anthropic import AnthropicStream, whole_reply
from evalcore.providers.openai import OpenAIStream, reply_of
from evalcore.providers.registry import open_session, send
from evalcore.providers.transport import Received, ServerSent
from tests.unit.providers.asking import HELLO, KEY
from tests.unit.providers.test_provider_failures import endless_stream

URL = "http://localhost/v1/chat/completions"
REQUEST = Request(Endpoint("openai", "local", "http://localhost/v1"), model="m", messages=HELLO)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def whole(message: dict[str, Any]) -> Reply:
    body = orjson.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    return reply_of(REQUEST, URL, Received(200, {}, body, None, 1.0))


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
    ("message", "said"),
    [
        ({"content": 5}, "content is no text"),
        ({"content": {"text": "hello"}}, "content is no text"),
        ({"refusal": True}, "refusal is no text"),
        ({"content": "hello", "tool_calls": "look_up"}, "tool_calls are no list of objects"),
        ({"content": "hello", "tool_calls": {"id": "a"}}, "tool_calls are no list of objects"),
        ({"content": "hello", "tool_calls": 5}, "tool_calls are no list of objects"),
        ({"content": "hello", "tool_calls": [None]}, "tool_calls are no list of objects"),
    ],
)
def test_a_message_of_another_shape_is_no_answer(
    message: dict[str, Any], said: str, stream: bool
) -> None:
    with pytest.raises(ProviderError, match=said) as caught:
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


def test_a_stream_of_several_answers_gives_the_first() -> None:
    reply = streamed(
        {"index": 0, "delta": {"content": "hel"}},
        {"index": 1, "delta": {"content": "other"}, "finish_reason": "length"},
        {"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"},
    )

    assert (reply.text, reply.finish_reason) == ("hello", "stop")


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


def test_a_byte_order_mark_before_a_stream_hides_no_event() -> None:
    events = b'\xef\xbb\xbfdata: {"choices":[{"delta":{"content":"hel"}}]}\n\n'
    events += b'data: {"choices":[{"delta":{"content":"lo"}}]}\n\ndata: [DONE]\n\n'
    with endless_stream(events, 1) as base_url:
        endpoint = Endpoint("openai", "openai", base_url, KEY)
        request = Request(endpoint, model="m", messages=HELLO, attempt_timeout_s=60.0, stream=True)

        async def asked() -> Reply:
            async with open_session() as session:
                return await send(session, request)

        assert asyncio.run(asked()).text == "hello"


STARTED = {"type": "message_start", "message": {"model": "m"}}
STOPPED = {"type": "message_stop"}


def streamed_by_anthropic(*events: dict[str, Any]) -> Reply:
    stream = AnthropicStream(REQUEST, URL)
    for event in events:
        stream.take(ServerSent("", orjson.dumps(event), 1.0))
    return stream.reply(3.0)


@pytest.mark.parametrize(
    "content",
    [[5], [None], ["hello"], [{"type": "text", "text": 5}], [{"type": "text", "text": ["a"]}]],
)
def test_content_that_is_no_list_of_blocks_is_no_answer(content: list[Any]) -> None:
    received = Received(200, {}, orjson.dumps({"content": content}), None, 1.0)

    with pytest.raises(ProviderError, match="content is no list of blocks") as caught:
        whole_reply(REQUEST, URL, received)

    assert caught.value.kind == ErrorKind.SERVER


def block(index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": fields}


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (block("1", type="text", text="b"), "has an 'index' that is no number"),
        (block(type="text", text=5), "has a 'text' that is no text"),
        (delta("text_delta", text=5), "has a 'text' that is no text"),
        (delta("input_json_delta", partial_json={}), "has a 'partial_json' that is no text"),
    ],
)
def test_an_event_of_another_shape_is_no_answer(event: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderError, match=said) as caught:
        streamed_by_anthropic(STARTED, event, STOPPED)

    assert caught.value.kind == ErrorKind.SERVER


def test_a_stream_of_anthropic_that_only_stops_is_an_error_of_the_server() -> None:
    with pytest.raises(ProviderError, match="ended without") as caught:
        streamed_by_anthropic(STOPPED)

    assert caught.value.kind == ErrorKind.SERVER
    assert streamed_by_anthropic(STARTED, STOPPED).text == ""
