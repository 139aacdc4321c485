"""Messages, tools and headers of a request in the words of a protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from evalcore.jsonvalues import parse
from evalcore.model.exchange import Request

_DATA_URI: Final = re.compile(r"data:([^;,]+)?(?:;[^;,]+)*;base64,(.*)", re.DOTALL)


def wire_headers(request: Request) -> dict[str, str]:
    """Return JSON's content type, the request's public headers and the endpoint's secret ones."""
    public = request.parameters.get("extra_headers") or {}
    return {"Content-Type": "application/json", **public, **request.endpoint.headers}


def parsed_arguments(raw: Any) -> Any:
    """Return the arguments of a tool call as JSON values; a text that is not JSON stays one."""
    if not isinstance(raw, str):
        return {} if raw is None else raw
    if not raw.strip():
        return {}
    try:
        return parse(raw)
    except ValueError:
        return raw


def openai_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as chat completions take them."""
    return [_openai_message(message) for message in messages]


def _openai_message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = [_openai_segment(segment) for segment in content]
    written = {**message, "content": content}
    if message.get("tool_calls"):
        written["tool_calls"] = [_openai_call(call) for call in message["tool_calls"]]
    return written


def _openai_segment(segment: Mapping[str, Any]) -> dict[str, Any]:
    value = segment.get("value")
    if segment.get("type") == "image":
        return {"type": "image_url", "image_url": {"url": value}}
    if segment.get("type") == "file":
        name = segment.get("name") or "file"
        if isinstance(value, str) and value.startswith("data:"):
            return {"type": "file", "file": {"filename": name, "file_data": value}}
        return {"type": "text", "text": value}
    if segment.get("type") == "text" and "value" in segment:
        return {"type": "text", "text": value}
    return dict(segment)


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    if "function" in call:
        return dict(call)
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    function = {"name": call.get("name"), "arguments": text}
    return {"id": call.get("id"), "type": "function", "function": function}


def openai_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in OpenAI's form, from that or from `{name, description, parameters}`."""
    if "function" in tool or ("type" in tool and "name" not in tool):
        return dict(tool)
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


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
