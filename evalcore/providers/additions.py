"""What evalcore adds to a request by itself, left out where a provider refuses it by name.

A judge's temperature 0 and schema, `stream_options`, Anthropic's `max_tokens`, and which of two
names the limit of an answer has. What the author of a target wrote is never left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from evalcore.model.exchange import ErrorKind, ProviderError, Request

SCHEMA: Final = "response_schema"
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
# These models refuse `max_tokens`.
_REASONING: Final = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-5)")
_NAMED: Final = re.compile(
    r"(?<!\w)(?:temperature|stream_?options|encoding_?format|max_(?:completion_)?tokens|response_?format"
    r"|response_?schema|json_?schema|schema|structured|tool_?choice|tools?)(?!\w)",
    re.IGNORECASE,
)
_SCHEMA_WORDS: Final = frozenset(
    {"responseformat", "responseschema", "jsonschema", "schema", "structured"}
)
# Anthropic is asked for a schema by a tool that the answer has to call.
_TOOL_WORDS: Final = frozenset({"toolchoice", "tools", "tool"})
# A limit that is too large is the author's mistake.
_UNKNOWN: Final = re.compile(
    r"unsupported|(?:not|n't) (?:be )?(?:supported?|permitted|allowed|recognized|valid)|unknown"
    r"|unrecognized|unexpected|extra|deprecated|instead|cannot find",
    re.IGNORECASE,
)
# An error of pydantic repeats what was sent.
_ECHOES: Final = ("input", "ctx", "url")


def named_in(body: bytes) -> frozenset[str]:
    """Return the parameters that a provider's answer names, in lower case without underscores."""
    try:
        text = "\n".join(_texts(orjson.loads(body)))
    except ValueError:
        text = body.decode(errors="replace")
    names = {name.lower().replace("_", "") for name in _NAMED.findall(text)}
    return frozenset(names if _UNKNOWN.search(text) else names - set(map(_plain, _LIMITS)))


def limit_name(request: Request) -> str:
    """Return the name that `max_tokens` has in a request of OpenAI's protocol."""
    names = _LIMITS[::-1] if _REASONING.match(request.model) else _LIMITS
    return next((name for name in names if name not in request.refused), names[0])


class Refusals:
    """What the providers of a run have refused so far, by address and model."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str, str], frozenset[str]] = {}

    def applied(self, request: Request) -> Request:
        """Return the request without what its provider is known to refuse."""
        refused = self._refused.get(_key(request))
        return request if refused is None else _without(request, refused & _additions(request))

    def without(self, request: Request, error: ProviderError) -> Request | None:
        """Return the request without what the provider refuses by name; None if that is nothing."""
        if error.kind != ErrorKind.REQUEST:
            return None
        refused = frozenset(
            name for name in _additions(request) if error.named & _words(request, name)
        )
        return _without(request, refused) if refused else None

    def learn(self, request: Request) -> None:
        """Note that a request was answered without what it leaves out."""
        if request.refused:
            refused = self._refused.get(_key(request), frozenset())
            self._refused[_key(request)] = refused | request.refused


def _key(request: Request) -> tuple[str, str, str]:
    return request.endpoint.protocol, request.endpoint.base_url, request.model


def _additions(request: Request) -> frozenset[str]:
    """Return the names of what evalcore added and can still leave out, or name otherwise."""
    names, parameters = set(request.added), request.parameters
    if request.endpoint.protocol == "anthropic":
        if not any(name in parameters for name in _LIMITS):
            names.add("max_tokens")
    elif request.endpoint.protocol == "openai-embeddings":
        names |= {"encoding_format"} - set(parameters)
    elif request.endpoint.protocol in ("openai", "any-llm"):
        if request.stream and "stream_options" not in parameters:
            names.add("stream_options")
        if parameters.get("max_tokens") is not None and not request.refused.intersection(_LIMITS):
            names.add(limit_name(request))
    return frozenset(names) - request.refused


def _words(request: Request, name: str) -> frozenset[str]:
    if name != SCHEMA:
        return frozenset({_plain(name)})
    by_tool = request.endpoint.protocol == "anthropic"
    return _SCHEMA_WORDS | _TOOL_WORDS if by_tool else _SCHEMA_WORDS


def _without(request: Request, names: frozenset[str]) -> Request:
    parameters, schema = request.parameters, request.response_schema
    if "temperature" in names:
        parameters = {name: value for name, value in parameters.items() if name != "temperature"}
    return replace(
        request,
        parameters=parameters,
        response_schema=None if SCHEMA in names else schema,
        added=request.added - names,
        refused=request.refused | names,
    )


def _plain(name: str) -> str:
    return name.replace("_", "")


def _texts(value: Any) -> list[str]:
    """Return the texts of an answer, without what it repeats of the request."""
    if isinstance(value, Mapping):
        pairs = [[str(name), inner] for name, inner in value.items() if name not in _ECHOES]
        return _texts(pairs)
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []
