"""What the semantic conventions call the parts of a call (gen_ai.*, server.*, http.*)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import orjson

from evalcore.model.exchange import ProviderError, Reply, Request
from evalcore.observability.observer import CallEnded, Cover

HTTP = "http"
_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
_LONGEST_TEXT = 16_384


def is_model(request: Request) -> bool:
    """Whether a model is asked, rather than anything else over HTTP."""
    return request.endpoint.protocol != HTTP


def call_name(request: Request) -> str:
    """Return the name of a call's span: `chat gpt-4o`, or the method of an HTTP request."""
    if is_model(request):
        return f"chat {request.model}".rstrip()
    return str(request.parameters.get("method") or "GET").upper()


def call_attributes(
    call: CallEnded, *, cover: Cover | None = None, measured: bool = False
) -> dict[str, Any]:
    """Return a call's attributes; with `measured` only those that metrics are grouped by.

    Contents are among them where there is a `cover` to take secrets out of them.
    Of an address only host and port are told: path and query may hold secrets.
    """
    request, outcome = call.request, call.outcome
    attributes = _address_attributes(request)
    if is_model(request):
        attributes |= _request_attributes(request, measured=measured)
    else:
        attributes["http.request.method"] = call_name(request)
    reply = outcome if isinstance(outcome, Reply) else None
    if reply is not None and is_model(request) and reply.model:
        attributes["gen_ai.response.model"] = reply.model
    if measured:
        return attributes
    if reply is not None:
        attributes |= _reply_attributes(reply, model=is_model(request))
    elif isinstance(outcome, ProviderError):
        attributes["evalcore.attempts"] = outcome.attempts
        if outcome.status is not None:
            attributes["http.response.status_code"] = outcome.status
    if cover is not None:
        attributes |= _content_attributes(request, reply, cover)
    return attributes


def _address_attributes(request: Request) -> dict[str, Any]:
    attributes: dict[str, Any] = {"evalcore.provider": request.endpoint.provider}
    address = request.endpoint.base_url or str(request.parameters.get("url") or "")
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError:
        return attributes
    if host:
        attributes["server.address"] = host
        port = port or {"https": 443, "http": 80}.get(url.scheme)
    if port:
        attributes["server.port"] = port
    return attributes


def _request_attributes(request: Request, *, measured: bool) -> dict[str, Any]:
    protocol = request.endpoint.protocol
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": protocol,
        # What it was called before; many receivers know only this.
        "gen_ai.system": protocol,
        "gen_ai.request.model": request.model,
    }
    if measured:
        return attributes
    for name, attribute in _PARAMETERS.items():
        value = request.parameters.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            attributes[attribute] = value
    return attributes


def _reply_attributes(reply: Reply, *, model: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "evalcore.attempts": reply.attempts,
        "evalcore.recorded": reply.recorded,
        "http.response.status_code": reply.status,
    }
    measures = {
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": reply.usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": reply.usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": reply.usage.reasoning_tokens,
        "evalcore.cost_usd": reply.cost_usd,
        "evalcore.latency_ms": reply.latency_ms,
        "evalcore.ttft_ms": reply.ttft_ms,
    }
    attributes |= {name: value for name, value in measures.items() if value is not None}
    if model and reply.finish_reason:
        attributes["gen_ai.response.finish_reasons"] = (reply.finish_reason,)
    return attributes


def _content_attributes(request: Request, reply: Reply | None, cover: Cover) -> dict[str, Any]:
    attributes, endpoint = {}, request.endpoint
    if request.messages:
        attributes["gen_ai.input.messages"] = text_of(cover(list(request.messages), endpoint))
    if reply is not None:
        answer = {"role": "assistant", "content": reply.text, "tool_calls": list(reply.tool_calls)}
        attributes["gen_ai.output.messages"] = text_of(cover([answer], endpoint))
    return attributes


def text_of(value: Any) -> str:
    """Return a content as text, cut to a length that receivers take."""
    if not isinstance(value, str):
        value = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    text: str = value.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
