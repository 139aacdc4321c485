"""The protocol of chat completions."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.model.exchange import Endpoint, ErrorKind, Usage
from evalcore.providers.transport import joined_url
from tests.support.model_server import Failure, model_server
from tests.support.model_wire import Answer
from tests.unit.providers.asking import HELLO, KEY, ask, ask_for, body_of, failure_of

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CALLS = ({"name": "look_up", "arguments": {"city": "Köln", "days": 3}},)


@STREAMS
def test_the_answer_comes_with_its_usage(stream: bool) -> None:
    reply = ask_for("fine, thank you ☺", "openai", stream=stream)

    assert reply.text == "fine, thank you ☺"
    assert (reply.model, reply.finish_reason, reply.status) == ("m", "stop", 200)
    assert reply.usage == Usage(2, 4)
    assert reply.latency_ms > 0
    assert (reply.attempts, reply.recorded, reply.cost_usd) == (1, False, None)


def test_a_streamed_answer_has_its_events_and_the_time_of_its_first_piece() -> None:
    reply = ask_for("one two", "openai", stream=True)

    assert [event.sequence for event in reply.events] == list(range(len(reply.events)))
    offsets = [event.offset_ms for event in reply.events]
    assert offsets == sorted(offsets)
    pieces = [event.data["choices"] for event in reply.events]
    assert "".join(c[0]["delta"].get("content", "") for c in pieces if c) == "one two"
    assert reply.ttft_ms is not None
    assert offsets[0] <= reply.ttft_ms <= reply.latency_ms


def test_a_whole_answer_has_neither() -> None:
    reply = ask_for("one two", "openai")

    assert (reply.events, reply.ttft_ms) == ((), None)


@STREAMS
def test_tool_calls_have_parsed_arguments(stream: bool) -> None:
    reply = ask_for(Answer("", tool_calls=CALLS * 2), "openai", stream=stream)

    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == tuple(
        {"id": f"call_{place}", "name": "look_up", "arguments": {"city": "Köln", "days": 3}}
        for place in (0, 1)
    )


@STREAMS
def test_an_answer_held_back_is_an_error_of_content(stream: bool) -> None:
    answer = Answer("", finish_reason="content_filter")

    assert failure_of(lambda _: answer, stream=stream).kind == ErrorKind.CONTENT


def test_a_failure_in_the_middle_of_a_stream_is_one() -> None:
    error = failure_of(Failure(how="stream_error", message="overloaded"), stream=True)

    assert error.kind == ErrorKind.SERVER
    assert "overloaded" in error.message


def test_a_stream_that_ends_early_is_a_connection_error() -> None:
    error = failure_of(Failure(how="stream_cut"), stream=True)

    assert error.kind == ErrorKind.CONNECTION
    assert "ended before" in error.message


@pytest.mark.parametrize("key", [KEY, None], ids=["key", "no key"])
def test_the_key_goes_into_the_header_if_there_is_one(key: str | None) -> None:
    with model_server() as server:
        endpoint = Endpoint("openai", "local", server.base_url + "/", key, {"X-Team": "secret"})
        ask(server, endpoint=endpoint, parameters={"extra_headers": {"X-Trace": "t"}})
        seen = server.requests[-1]

    assert seen.headers.get("Authorization") == (key and f"Bearer {key}")
    assert (seen.headers["X-Team"], seen.headers["X-Trace"]) == ("secret", "t")
    assert "extra_headers" not in seen.body


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"parameters": {"temperature": 0, "stop": ["x"], "seed": 1, "top_k": 4}},
         {"temperature": 0, "stop": ["x"], "seed": 1, "top_k": 4}),
        ({"parameters": {"max_tokens": 5}}, {"max_tokens": 5}),
        ({"model": "o3-mini", "parameters": {"max_tokens": 5}},
         {"model": "o3-mini", "max_completion_tokens": 5}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"tools": ({"name": "f", "description": "d", "parameters": {"type": "object"}},)},
         {"tools": [{"type": "function", "function": {
             "name": "f", "description": "d", "parameters": {"type": "object"}}}]}),
        ({"tools": ({"type": "function", "function": {"name": "f"}},)},
         {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ({"response_schema": SCHEMA},
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "answer", "schema": SCHEMA, "strict": True}}}),
        ({"response_schema": {"type": "object"}},
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "answer", "schema": {"type": "object"}, "strict": False}}}),
    ],
    ids=["parameters", "max_tokens", "reasoning model", "stream", "plain tool", "OpenAI's tool",
         "closed schema", "open schema"],
)  # fmt: skip
def test_what_is_asked_for_is_sent(fields: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body_of("openai", **fields) == {"model": "m", "messages": list(HELLO), **sent}


def test_segments_and_tool_messages_have_the_protocols_form() -> None:
    call = {"id": "c1", "name": "f", "arguments": {"x": 1}}
    messages = (
        {"role": "user", "content": [
            {"type": "text", "value": "see"},
            {"type": "image", "value": "https://x/y.png"},
        ]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    )  # fmt: skip

    assert body_of("openai", messages=messages)["messages"] == [
        {"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ]},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("https://h/d?api-version=1", "https://h/d/chat/completions?api-version=1"),
    ],
)
def test_the_base_url_may_end_as_it_likes(base: str, url: str) -> None:
    assert joined_url(base, "/chat/completions") == url


@STREAMS
def test_a_key_that_the_model_repeats_is_not_in_the_reply(stream: bool) -> None:
    reply = ask_for(
        Answer(f"it is {KEY}", tool_calls=({"name": "f", "arguments": {"k": KEY}},)),
        "openai",
        stream=stream,
    )

    assert reply.text == "it is [redacted]"
    assert KEY not in str(reply)


def test_a_key_that_is_an_ordinary_word_stays_in_the_reply() -> None:
    with model_server(script=lambda _: "a test") as server:
        endpoint = Endpoint("openai", "local", server.base_url, "test")
        assert ask(server, endpoint=endpoint).text == "a test"
