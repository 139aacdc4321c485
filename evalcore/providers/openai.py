"""The protocol of OpenAI's chat completions, which most model servers speak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.model.exchange import Reply, Request
from evalcore.providers.failures import limit_name
from evalcore.providers.prices import charged, usage_of
from evalcore.providers.transport import (
    AnswerStream,
    Received,
    ServerSent,
    ask,
    bearer,
    joined_url,
    parsed_arguments,
)

if TYPE_CHECKING:
    import aiohttp

_PATH: Final = "/chat/completions"
_DONE: Final = b"[DONE]"
_OWN: Final = ("extra_headers",)


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:
    """Return the model's answer; raise `ProviderError`."""
    answer = OpenAIStream(request, joined_url(request.endpoint.address, _PATH))
    return await ask(session, answer, payload_of(request), bearer(request))


def payload_of(request: Request) -> dict[str, Any]:
    """Return the body of the request."""
    parameters = {key: value for key, value in request.parameters.items() if key not in _OWN}
    if "max_tokens" in parameters:
        parameters[limit_name(request)] = parameters.pop("max_tokens")
    payload = {
        "model": request.model,
        "messages": openai_messages(request.messages),
        **parameters,
    }
    if request.tools:
        payload["tools"] = [openai_tool(tool) for tool in request.tools]
    if request.response_schema is not None:
        payload["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "schema": request.response_schema,
                "strict": _is_closed(request.response_schema),
            },
        }
    if request.stream:
        payload["stream"] = True
        if "stream_options" not in request.refused:
            payload.setdefault("stream_options", {"include_usage": True})
    return {name: value for name, value in payload.items() if value is not None}


def _is_closed(schema: Any) -> bool:
    """Whether strict mode takes the schema: each object names all it has, all of it required."""
    if isinstance(schema, list | tuple):
        return all(_is_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        named = schema.get("properties") or {}
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required") or ()) != set(named):
            return False
    return all(_is_closed(value) for value in schema.values())


def _first_choice(data: Mapping[str, Any]) -> Any:
    return next(iter(data.get("choices") or ()), None)


def _text_in(message: Mapping[str, Any], name: str) -> str:
    """Return the text of a field, "" where there is none; raise `TypeError`."""
    content = message.get(name)
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    raise TypeError(f"has a '{name}' that is no text")


def _call_of(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return {
        "id": call.get("id"),
        "name": str(named.get("name") or ""),
        "arguments": parsed_arguments(named.get("arguments")),
    }


@dataclass(slots=True)
class OpenAIStream(AnswerStream):
    """Puts a streamed answer together."""

    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    open_calls: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, sent: ServerSent) -> None:
        """Take one event; raise `ProviderError` if it tells a failure or is senseless."""
        if sent.data.strip() == _DONE:
            self.complete = True
        else:
            AnswerStream.take(self, sent)

    def take_usage(self, data: Mapping[str, Any]) -> None:
        """Take the tokens, and the dollars that some providers (OpenRouter) tell beside them."""
        usage = data.get("usage")
        self.usage = usage_of(usage, data.get("service_tier"))
        self.cost_usd = charged(usage, "cost") if isinstance(usage, dict) else None

    def take_data(self, data: Mapping[str, Any], sent: ServerSent) -> None:
        """Take what an event holds; raise `TypeError` or its likes for another shape."""
        self.model = self.model or str(data.get("model") or "")
        if data.get("usage"):
            self.take_usage(data)
        choice = _first_choice(data)
        # Of several answers (`n`) the first one counts, as in a whole answer.
        if isinstance(choice, dict) and not choice.get("index"):
            self._take_choice(choice, sent.offset_ms)

    def _take_choice(self, choice: Mapping[str, Any], offset_ms: float) -> None:
        if choice.get("finish_reason"):
            self.reason = str(choice["finish_reason"])
            self.complete = True
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        self.has_begun = True
        text, refusal = _text_in(delta, "content"), _text_in(delta, "refusal")
        calls = delta.get("tool_calls") or ()
        self.texts.append(text)
        self.refusals.append(refusal)
        for position, part in enumerate(calls):
            self._take_call(part, position)
        if self.ttft_ms is None and (text or refusal or calls):
            self.ttft_ms = offset_ms

    def _take_call(self, part: Mapping[str, Any], position: int) -> None:
        function = part.get("function")
        named = function if isinstance(function, dict) else {}
        name, arguments = str(named.get("name") or ""), named.get("arguments")
        index = part.get("index")
        index = index if isinstance(index, int) else position
        call = self.open_calls.get(index)
        # Gemini's server counts every call as the first one: another id begins another call.
        if call is None or (name and part.get("id") and call["id"] not in (None, part["id"])):
            call = self.open_calls[index] = {"id": None, "name": "", "arguments": ""}
            self.calls.append((index, call))
        call["id"] = part.get("id") or call["id"]
        call["name"] += name
        if isinstance(arguments, str) and isinstance(call["arguments"], str):
            call["arguments"] += arguments
        elif arguments:  # whole, as some servers send them
            call["arguments"] = arguments

    def reply(self, latency_ms: float) -> Reply:
        """Return the whole answer; raise `ProviderError` if it was cut off."""
        self.has_begun = self.has_begun or self.reason is not None
        self.check_whole("choices[0].delta")
        calls = [
            {**call, "arguments": parsed_arguments(call["arguments"])}
            for _, call in sorted(self.calls, key=itemgetter(0))
        ]
        return self.whole("".join(self.texts) or "".join(self.refusals), calls, latency_ms)

    def take_whole(self, data: Any, received: Received) -> Reply:
        """Return the reply that the answer's JSON is; raise `TypeError` or its likes."""
        choice = data["choices"][0]
        message = choice["message"]
        calls = [_call_of(call) for call in message.get("tool_calls") or ()]
        text = _text_in(message, "content") or _text_in(message, "refusal")
        self.model = str(data.get("model") or "")
        self.take_usage(data)
        self.reason = choice.get("finish_reason")
        return self.whole(text, calls, received.latency_ms, received.status)


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
