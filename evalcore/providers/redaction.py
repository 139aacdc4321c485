"""No secret of an endpoint in what its provider sends back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import orjson

from evalcore.model.exchange import Endpoint, Reply
from evalcore.redaction.redactor import PROCESS, redactor_of

_SHORTEST: Final = 4
# Of `Bearer abc…` the server may repeat the second word alone.
_SHORTEST_PART: Final = 8
_LONGEST_EXCERPT: Final = 300
# Host and port, or no more of a URL than that: an address, not what opens it.
_HOST: Final = re.compile(r"https?://[^/?#@]*/?|[\w.-]+:\d+/?")
_SHORTEST_IN_PATH: Final = 16


def secrets_of(endpoint: Endpoint) -> frozenset[str]:
    """Return the endpoint's key, secret headers and values as they may turn up.

    Values of fewer than four characters are left out: to hide each `1` hides no secret.
    """
    values = (part for value in endpoint.values.values() for part in _parts_of_url(value))
    return _secrets_in((endpoint.api_key or "", *endpoint.headers.values(), *values))


def _parts_of_url(value: str) -> Iterator[str]:
    """Yield what may be secret in a part of a URL: all of it, keys in its query and its path."""
    if _HOST.fullmatch(value):
        return
    yield value
    try:
        parts = urlsplit(value)
    except ValueError:
        return
    yield from (part for _, part in parse_qsl(parts.query))
    yield from (part for part in parts.path.split("/") if len(part) >= _SHORTEST_IN_PATH)


@lru_cache(maxsize=64)
def _secrets_in(values: tuple[str, ...]) -> frozenset[str]:
    secrets: set[str] = set()
    for value in values:
        parts = (part for part in re.split(r"[\s;,]+", value) if len(part) >= _SHORTEST_PART)
        secrets |= {text for text in (value.strip(), *parts) if len(text) >= _SHORTEST}
    return frozenset(secrets)


def cleaned_text(text: str, secrets: frozenset[str]) -> str:
    """Return a message with `[redacted]` in the place of each secret."""
    return PROCESS.message(redactor_of(secrets, _SHORTEST).text(text))


def cleaned_reply(reply: Reply, secrets: frozenset[str]) -> Reply:
    """Return the reply without secrets; the same object if it holds none.

    A secret that may be an ordinary word (a local server's `test`) is left in it. Where one was
    repeated, the events are left out: it may lie across several of them.
    """
    redactor = PROCESS.knowing(secrets)
    if not redactor.knows:
        return reply
    calls = orjson.dumps([dict(call) for call in reply.tool_calls], option=orjson.OPT_NON_STR_KEYS)
    streamed = "".join(map(_texts_of, (event.data for event in reply.events)))
    whole = f"{reply.text}\n{reply.model}\n{calls.decode()}\n{streamed}"
    if redactor.text(whole) == whole:
        return reply
    return replace(
        reply,
        text=redactor.text(reply.text),
        model=redactor.text(reply.model),
        tool_calls=tuple(redactor.value(dict(call)) for call in reply.tool_calls),
        events=(),
    )


def _texts_of(data: Any) -> str:
    """Return the texts of an event, one after another: a secret may lie across several events."""
    if isinstance(data, str):
        return data
    if isinstance(data, dict):
        return "".join(map(_texts_of, data.values()))
    return "".join(map(_texts_of, data)) if isinstance(data, list) else ""


def excerpt(body: bytes, secrets: frozenset[str]) -> str:
    """Return the start of a body as one line of at most 300 characters, without secrets."""
    # Redacted before it is cut: half a secret is not found any more.
    text = cleaned_text(body[: 64 * _LONGEST_EXCERPT].decode(errors="replace"), secrets)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_EXCERPT else f"{line[:_LONGEST_EXCERPT]}…"
