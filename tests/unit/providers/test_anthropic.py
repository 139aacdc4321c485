"""The protocol of Anthropic's messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalcore.model.exchange import ErrorKind, Usage
from evalcore.providers.anthropic import messages_url
from tests.support.model_server import Failure, model_server
from tests.support.model_wire import Answer
from tests.unit.providers.asking import KEY, ask, ask_for, body_of, failure_of

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
USER = {"role": "user", "content": [{"type": "text", "text": "hello you"}]}


@STREAMS
def test_the_answer_comes_with_its_usage(stream: bool) -> None:
    reply = ask_for("fine, thank you ☺", "anthropic", stream=stream)

    assert reply.text == "fine, thank you ☺"
    assert (reply.model, reply.finish_reason) == ("m", "end_turn")
    assert reply.usage == Usage(2, 4)
    assert (reply.ttft_ms is not None) is stream
    assert bool(reply.events) is stream


@STREAMS
def test_tool_calls_have_parsed_arguments(stream: bool) -> None:
    calls = ({"name": "f", "arguments": {"x": [1]}}, {"name": "g", "arguments": {}})
    reply = ask_for(Answer("let me see", tool_calls=calls), "anthropic", stream=stream)

    assert (reply.text, reply.finish_reason) == ("let me see", "tool_use")
    assert reply.tool_calls == (
        {"id": "toolu_0", "name": "f", "arguments": {"x": [1]}},
        {"id": "toolu_1", "name": "g", "arguments": {}},
    )


@STREAMS
def test_an_object_is_asked_for_by_a_tool_that_must_be_called(stream: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    def answer(question: Any) -> Answer:
        assert question.body["tool_choice"] == {"type": "tool", "name": "answer"}
        assert question.body["tools"][0]["input_schema"] == schema
        return Answer("", tool_calls=({"name": "answer", "arguments": {"a": 1}},))

    reply = ask_for(answer, "anthropic", response_schema=schema, stream=stream)

    assert json.loads(reply.text) == {"a": 1}
    assert reply.tool_calls == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"response_schema": {"type": "array"}},
        {"response_schema": {"type": "object"}, "tools": ({"name": "f"},)},
    ],
    ids=["no object", "beside tools"],
)
def test_another_schema_is_asked_for_by_an_instruction(fields: dict[str, Any]) -> None:
    body = body_of("anthropic", **fields)

    assert "tool_choice" not in body
    assert json.dumps(fields["response_schema"]) in body["system"]


def test_a_refusal_without_words_is_an_error_of_content() -> None:
    error = failure_of(lambda _: Answer("", finish_reason="refusal"), "anthropic")

    assert error.kind == ErrorKind.CONTENT


def test_a_failure_in_the_middle_of_a_stream_is_one() -> None:
    error = failure_of(Failure(how="stream_error", message="overloaded"), "anthropic", stream=True)

    assert error.kind == ErrorKind.SERVER
    assert "overloaded" in error.message


def test_a_stream_that_ends_early_is_a_connection_error() -> None:
    error = failure_of(Failure(how="stream_cut"), "anthropic", stream=True)

    assert error.kind == ErrorKind.CONNECTION


def test_version_and_key_are_headers() -> None:
    with model_server() as server:
        ask(server, "anthropic")
        headers = server.requests[-1].headers

    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {"max_tokens": 4096}),
        ({"parameters": {"max_tokens": 7, "temperature": 0, "top_k": 3}},
         {"max_tokens": 7, "temperature": 0, "top_k": 3}),
        ({"parameters": {"stop": "x", "seed": 1, "tool_choice": "required"}},
         {"max_tokens": 4096, "stop_sequences": ["x"], "tool_choice": {"type": "any"}}),
        ({"tools": ({"name": "f", "parameters": {"type": "object"}},)},
         {"max_tokens": 4096, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
        ({"tools": ({"type": "function", "function": {"name": "f"}},)},
         {"max_tokens": 4096, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    ],
    ids=["defaults", "parameters", "translated", "plain tool", "OpenAI's tool"],
)  # fmt: skip
def test_what_is_asked_for_is_sent(fields: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body_of("anthropic", **fields) == {"model": "m", "messages": [USER], **sent}


def test_system_messages_are_lifted_out_and_tool_answers_stand_together() -> None:
    messages = (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [
            {"type": "text", "value": "see"},
            {"type": "image", "value": "data:image/png;base64,QUJD"},
            {"type": "image", "value": "https://x/y.png"},
        ]},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "name": "f", "arguments": {"x": 1}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    )  # fmt: skip
    body = body_of("anthropic", messages=messages)

    assert body["system"] == "be brief"
    assert body["messages"] == [
        {"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image",
             "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}]},
        ]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h", "https://h/v1/messages"),
        ("https://h/v1", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/v1/messages", "https://h/v1/messages"),
        ("https://h/proxy", "https://h/proxy/v1/messages"),
    ],
)
def test_the_base_url_may_name_the_version_or_not(base: str, url: str) -> None:
    assert messages_url(base) == url
