"""The protocol of Anthropic's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from evalcore.model.exchange import (
    ANTHROPIC_TOKENS,
    Reply,
    Request,
)
from evalcore.providers.prices import usage_of
from evalcore.providers.transport import (
    AnswerStream,
    Received,
    ServerSent,
    ask,
    joined_url,
    parsed_arguments,
)

if TYPE_CHECKING:
    import aiohttp

_DATA_URI: Final = re.compile(r"data:([^;,]+)?(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_VERSION: Final = "2023-06-01"
_ANSWER: Final = "answer"
# Parameters of the OpenAI API that have no counterpart.
_UNKNOWN: Final = frozenset(
    {
        "extra_headers",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "response_format",
        "seed",
        "stream_options",
        "top_logprobs",
    }
)


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:
    """Return the model's answer; raise `ProviderError`."""
    answer = AnthropicStream(request, messages_url(request.endpoint.address))
    headers = {"anthropic-version": _VERSION}
    if request.endpoint.api_key:
        headers["x-api-key"] = request.endpoint.api_key
    return await ask(session, answer, payload_of(request), headers)


def messages_url(base_url: str) -> str:
    """Return the address below `base_url`, which may end with `/v1` or not."""
    path = urlsplit(base_url).path.rstrip("/")
    return joined_url(base_url, "/messages" if path.endswith("/v1") else "/v1/messages")


def payload_of(request: Request) -> dict[str, Any]:
    """Return the body of the request.

    A schema of the answer is asked for by a tool that has to be called; beside other tools, or if
    it is not an object's, by an instruction.
    """
    system, messages = anthropic_messages(request.messages)
    payload: dict[str, Any] = {"model": request.model, "messages": messages}
    default = None if "max_tokens" in request.refused else ANTHROPIC_TOKENS
    payload["max_tokens"] = request.parameters.get("max_completion_tokens", default)
    for name, value in request.parameters.items():
        if name == "stop":
            payload["stop_sequences"] = [value] if isinstance(value, str) else value
        elif name == "tool_choice":
            payload[name] = _tool_choice(value)
        elif name not in _UNKNOWN:
            payload[name] = value
    tools = [anthropic_tool(tool) for tool in request.tools]
    schema = request.response_schema
    if schema is not None and answers_by_tool(request):
        tools = [{"name": _ANSWER, "description": "Give the answer.", "input_schema": schema}]
        payload["tool_choice"] = {"type": "tool", "name": _ANSWER}
    elif schema is not None:
        written = json.dumps(schema, ensure_ascii=False, default=dict)
        instruction = (
            f"Answer with JSON only, without a code fence, valid against this schema: {written}"
        )
        system = f"{system}\n\n{instruction}" if system else instruction
    if system:
        payload["system"] = system
    if tools:
        payload["tools"] = tools
    if request.stream:
        payload["stream"] = True
    return {name: value for name, value in payload.items() if value is not None}


def answers_by_tool(request: Request) -> bool:
    """Whether the schema of the answer is asked for by a tool of its own."""
    schema = request.response_schema
    return schema is not None and not request.tools and schema.get("type") == "object"


def _tool_choice(value: Any) -> Any:
    if isinstance(value, str):
        return {"type": "any" if value == "required" else value}
    if isinstance(value, Mapping) and isinstance(value.get("function"), Mapping):
        return {"type": "tool", "name": value["function"].get("name")}
    return value


@dataclass(slots=True)
class AnthropicStream(AnswerStream):
    """Puts an answer together from its blocks, streamed or not."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    counted: dict[str, Any] = field(default_factory=dict)

    def take_data(self, data: Mapping[str, Any], sent: ServerSent) -> None:
        """Take what an event holds; raise `TypeError` or its likes for another shape."""
        kind = data.get("type") or sent.name
        if kind == "message_start":
            self.has_begun = True
            message = _mapping(data.get("message"))
            self.model = str(message.get("model") or "")
            self.take_usage(message.get("usage"))
        elif kind == "content_block_start":
            block = {**_mapping(data.get("content_block"))}
            self.blocks[index(data.get("index", 0))] = {**block, "text": _piece(block, "text")}
        elif kind == "content_block_delta":
            self._take_delta(
                self.blocks.setdefault(index(data.get("index", 0)), {}), data, sent.offset_ms
            )
        elif kind == "message_delta":
            self.reason = _mapping(data.get("delta")).get("stop_reason") or self.reason
            self.take_usage(data.get("usage"))
        elif kind == "message_stop":
            self.complete = True

    def _take_delta(self, block: dict[str, Any], data: Mapping[str, Any], offset_ms: float) -> None:
        delta = _mapping(data.get("delta"))
        if delta.get("type") == "text_delta":
            block["text"] = _piece(block, "text") + _piece(delta, "text")
        elif delta.get("type") == "input_json_delta":
            block["json"] = _piece(block, "json") + _piece(delta, "partial_json")
        else:
            return
        if self.ttft_ms is None:
            self.ttft_ms = offset_ms

    def take_usage(self, raw: Any) -> None:
        """Take the tokens counted so far; raise `ProviderError`."""
        self.counted |= {name: n for name, n in _mapping(raw).items() if n is not None}
        self.usage = usage_of(self.counted, self.counted.get("service_tier"))

    def reply(self, latency_ms: float, status: int = 200) -> Reply:
        """Return the whole answer; raise `ProviderError` if it was cut off."""
        self.check_whole("a message_start")
        blocks = [block for _, block in sorted(self.blocks.items())]
        text = "".join(block.get("text") or "" for block in blocks)
        calls = [_call_of(block) for block in blocks if block.get("type") == "tool_use"]
        if calls and answers_by_tool(self.request):
            text, calls = orjson.dumps(calls[0]["arguments"]).decode(), []
        return self.whole(text, calls, latency_ms, status)

    def take_whole(self, data: Any, received: Received) -> Reply:
        """Return the reply that the answer's JSON is; raise `TypeError` or its likes."""
        self.model, self.reason = str(data.get("model") or ""), data.get("stop_reason")
        self.blocks = dict(enumerate(data["content"]))
        self.has_begun = self.complete = True
        self.take_usage(data.get("usage"))
        return self.reply(received.latency_ms, received.status)


def _call_of(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = parsed_arguments(block["json"]) if "json" in block else block.get("input") or {}
    return {"id": block.get("id"), "name": str(block.get("name") or ""), "arguments": arguments}


def _piece(fields: Mapping[str, Any], name: str) -> str:
    """Return a piece of text, "" where there is none; raise `TypeError`."""
    piece = fields.get(name)
    return "" if piece is None else "" + piece


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def anthropic_messages(
    messages: Iterable[Mapping[str, Any]],
) -> tuple[str, list[dict[str, Any]]]:
    """Return the system text and the other messages as Anthropic's messages take them.

    Messages of one role that follow each other become one: the answers of several tools have to
    stand in the same message.
    """
    system: list[str] = []
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") == "system":
            blocks = _anthropic_blocks(message.get("content"))
            system += [block["text"] for block in blocks if block["type"] == "text"]
            continue
        role = "assistant" if message.get("role") == "assistant" else "user"
        content = _anthropic_content(message)
        if written and written[-1]["role"] == role:
            written[-1]["content"] += content
        else:
            written.append({"role": role, "content": content})
    return "\n\n".join(text for text in system if text), written


def _anthropic_content(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = _anthropic_blocks(message.get("content"))
    if message.get("role") == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
        return [{**result, "content": blocks}]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        blocks.append(
            {
                "type": "tool_use",
                "id": call.get("id"),
                "name": function.get("name"),
                "input": parsed_arguments(function.get("arguments")),
            }
        )
    return blocks


def _anthropic_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        # An empty text block is refused.
        return [{"type": "text", "text": content}] if content else []
    return [_anthropic_block(segment) for segment in content or ()]


def _anthropic_block(segment: Mapping[str, Any]) -> dict[str, Any]:
    kind, value = segment.get("type"), segment.get("value")
    if "value" not in segment:
        return dict(segment)
    data = _DATA_URI.fullmatch(value) if isinstance(value, str) else None
    if kind == "image" or (kind == "file" and data is not None):
        block = "image" if kind == "image" else "document"
        if data is None:
            return {"type": block, "source": {"type": "url", "url": value}}
        media = data[1] or "application/octet-stream"
        return {
            "type": block,
            "source": {"type": "base64", "media_type": media, "data": data[2]},
        }
    return {"type": "text", "text": value}


def anthropic_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in Anthropic's form, from that, from OpenAI's, or from the plain one."""
    function = tool.get("function")
    plain = function if isinstance(function, Mapping) else tool
    if "parameters" not in plain and ("input_schema" in plain or "type" in plain):
        return dict(plain)
    written = {
        "name": plain.get("name"),
        "input_schema": plain.get("parameters") or {"type": "object"},
    }
    if plain.get("description"):
        written["description"] = plain["description"]
    return written
