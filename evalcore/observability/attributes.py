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
    found = _where(request)
    if is_model(request):
        found |= _asked(request, measured=measured)
    else:
        found["http.request.method"] = call_name(request)
    reply = outcome if isinstance(outcome, Reply) else None
    if reply is not None and is_model(request) and reply.model:
        found["gen_ai.response.model"] = reply.model
    if measured:
        return found
    if reply is not None:
        found |= _answered(reply, model=is_model(request))
    elif isinstance(outcome, ProviderError):
        found["evalcore.attempts"] = outcome.attempts
        if outcome.status is not None:
            found["http.response.status_code"] = outcome.status
    if cover is not None:
        found |= _contents(request, reply, cover)
    return found


def _where(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {"evalcore.provider": request.endpoint.provider}
    address = request.endpoint.base_url or str(request.parameters.get("url") or "")
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError:
        return found
    if host:
        found["server.address"] = host
        port = port or {"https": 443, "http": 80}.get(url.scheme)
    if port:
        found["server.port"] = port
    return found


def _asked(request: Request, *, measured: bool) -> dict[str, Any]:
    protocol = request.endpoint.protocol
    found: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": protocol,
        # What it was called before; many receivers know only this.
        "gen_ai.system": protocol,
        "gen_ai.request.model": request.model,
    }
    if measured:
        return found
    for name, attribute in _PARAMETERS.items():
        value = request.parameters.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[attribute] = value
    return found


def _answered(reply: Reply, *, model: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "evalcore.attempts": reply.attempts,
        "evalcore.recorded": reply.recorded,
        "http.response.status_code": reply.status,
    }
    given = {
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
        "evalcore.cost_usd": reply.cost_usd,
        "evalcore.latency_ms": reply.latency_ms,
        "evalcore.ttft_ms": reply.ttft_ms,
    }
    found |= {name: value for name, value in given.items() if value is not None}
    if model and reply.finish_reason:
        found["gen_ai.response.finish_reasons"] = (reply.finish_reason,)
    return found


def _contents(request: Request, reply: Reply | None, cover: Cover) -> dict[str, Any]:
    found, endpoint = {}, request.endpoint
    if request.messages:
        found["gen_ai.input.messages"] = text_of(cover(list(request.messages), endpoint))
    if reply is not None:
        answer = {"role": "assistant", "content": reply.text, "tool_calls": list(reply.tool_calls)}
        found["gen_ai.output.messages"] = text_of(cover([answer], endpoint))
    return found


def text_of(value: Any) -> str:
    """Return a content as text, cut to a length that receivers take."""
    if not isinstance(value, str):
        value = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    text: str = value.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
