"""Failed answers of providers: their kinds, messages without secrets, refused parameters."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import orjson

from evalcore.jsonvalues import parse, storable
from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Reply, Request
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


SCHEMA: Final = "response_schema"
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
# These models refuse `max_tokens`.
_REASONING: Final = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-5)")
# What a refusal may call a parameter, where it is not its name.
_SCHEMA_WORDS: Final = ("response_format", "json_schema", "schema", "structured")
# Anthropic is asked for a schema by a tool that the answer has to call.
_TOOL_WORDS: Final = (*_SCHEMA_WORDS, "tool_choice", "tools", "tool")


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
        said = error.message.lower()
        refused = frozenset(
            name
            for name in _additions(request)
            if any(word in said for word in _words(request, name))
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
    elif request.endpoint.protocol == "openai":
        if request.stream and "stream_options" not in parameters:
            names.add("stream_options")
        if parameters.get("max_tokens") is not None and not request.refused.intersection(_LIMITS):
            names.add(limit_name(request))
    return frozenset(names) - request.refused


def _words(request: Request, name: str) -> tuple[str, ...]:
    if name != SCHEMA:
        return (name, name.replace("_", ""), name.replace("_", " "))
    return _TOOL_WORDS if request.endpoint.protocol == "anthropic" else _SCHEMA_WORDS


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


_TIMEOUTS: Final = (408, 504)
_CONTENT: Final = re.compile(
    r"content[ _](?:filter|policy|management policy)|responsibleaipolicy|requires moderation"
)
# Codes and words of providers whose credit is used up; more calls do not help before it is paid.
_CREDIT_STATUS: Final = 402
_CREDIT_CODES: Final = re.compile(
    r"insufficient_(?:quota|balance|credit|funds)|exceeded_current_quota|billing_|arrearage|perday"
)
_CREDIT_WORDS: Final = re.compile(
    r"insufficient (?:quota|balance|credit|funds)|credit balance|out of credit|credits are depleted"
    r"|available credits|spending limit|billing (?:hard limit|is disabled|to be enabled)"
    r"|enable billing|payment required"
)
_STREAMED: Final = (
    ("rate_limit", ErrorKind.RATE),
    ("authentication", ErrorKind.AUTHENTICATION),
    ("permission", ErrorKind.AUTHENTICATION),
    ("invalid_request", ErrorKind.REQUEST),
    ("not_found", ErrorKind.REQUEST),
    ("timeout", ErrorKind.TIMEOUT),
)


def host_of(url: str) -> str:
    """Return host and port of a URL, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _visible_url(endpoint: Endpoint, url: str) -> str:
    """Return the URL without its query; as it is written where it has values that are secret."""
    return (endpoint.base_url if endpoint.values else url).partition("?")[0]


def failed(
    endpoint: Endpoint, url: str, kind: ErrorKind, what: str, status: int | None = None
) -> ProviderError:
    """Return the error with the provider and the host in front of its message."""
    where = _visible_url(endpoint, url) if endpoint.values else host_of(url)
    return ProviderError(kind, f"{endpoint.provider} at {where}: {what}", status)


def refused(
    endpoint: Endpoint, url: str, status: int, headers: Mapping[str, str], body: bytes
) -> ProviderError:
    """Return the error that an answer of this status (300 or more) is."""
    reason = _reason(endpoint, body)
    kind = kind_of_status(status, body, is_model=endpoint.protocol != "http")
    what = f"HTTP {status}: {reason}" if reason else f"HTTP {status}"
    hint = _hint(endpoint, url, status, headers)
    error = failed(endpoint, url, kind, f"{what}{hint}", status)
    error.retry_after_s = retry_after_s(headers, time.time())
    return error


def check_key(endpoint: Endpoint, url: str) -> None:
    """Raise `ProviderError` if the provider's own server would be asked without a key."""
    owner = endpoint.protocol.partition("-")[0]
    if endpoint.api_key or endpoint.headers or host_of(url) != f"api.{owner}.com":
        return
    what = f"no key: set the environment variable {owner.upper()}_API_KEY, or give the target"
    what = f"{what} '{endpoint.provider}' `api_key: ${{{{ NAME }}}}`"
    raise failed(endpoint, url, ErrorKind.AUTHENTICATION, what)


def nonsense(endpoint: Endpoint, url: str, what: str, body: bytes) -> ProviderError:
    """Return the error that a successful status with a senseless body is."""
    start = excerpt(body, secrets_of(endpoint))
    begins = f"; it begins: {start}" if start else "; it is empty"
    return failed(endpoint, url, ErrorKind.SERVER, f"{what}{begins}", 200)


def parsed_answer(
    endpoint: Endpoint, url: str, body: bytes, what: str, charset: str | None = None
) -> Any:
    """Return the JSON of an answer or of an event of it, which `what` names.

    Raises `ProviderError` for what is not JSON, and for an error of the provider.
    """
    try:
        data = parse(body, charset)
    except ValueError as error:
        raise nonsense(endpoint, url, f"{what} is not JSON", body) from error
    if isinstance(data, dict) and data.get("error"):
        raise streamed_failure(endpoint, url, data["error"])
    return data


def streamed_failure(endpoint: Endpoint, url: str, error: Any) -> ProviderError:
    """Return the error that a provider sends in the middle of an answer of status 200."""
    body = orjson.dumps({"error": storable(error).value})
    named = f"{error.get('type')} {error.get('code')}" if isinstance(error, Mapping) else ""
    kind = next((kind for word, kind in _STREAMED if word in named.lower()), ErrorKind.SERVER)
    code = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(code, int) and 400 <= code < 600:  # the status that the answer should have had
        kind = kind_of_status(code, body)
    if _is_about_credit(body):
        kind = ErrorKind.CREDIT
    if _is_about_content(body):
        kind = ErrorKind.CONTENT
    return failed(endpoint, url, kind, f"error in the answer: {_reason(endpoint, body)}", 200)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `Retry-After` asks for: a number or a date; None for neither."""
    from email.utils import parsedate_to_datetime

    written = headers.get("retry-after", "").strip()
    try:
        if written[:1].isdigit() or written[:1] in ("+", "-", "."):
            return _bounded(float(written))
        return _bounded(parsedate_to_datetime(written).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    # NaN and infinity are no times.
    return max(seconds, 0.0) if seconds < float("inf") else None


def kind_of_status(status: int, body: bytes, *, is_model: bool = True) -> ErrorKind:
    """Return what an answer of this status (300 or more) and body means.

    Of what is no model, only the status is known to speak of a call and not of the case.
    """
    if status == _CREDIT_STATUS or (is_model and 400 <= status < 500 and _is_about_credit(body)):
        return ErrorKind.CREDIT
    if status == 403 and _is_about_content(body):
        return ErrorKind.CONTENT
    if status in (401, 403):
        return ErrorKind.AUTHENTICATION
    if status == 429:
        return ErrorKind.RATE
    if status in _TIMEOUTS:
        return ErrorKind.TIMEOUT
    if status >= 500:
        return ErrorKind.SERVER
    return ErrorKind.CONTENT if _is_about_content(body) else ErrorKind.REQUEST


def _is_about_credit(body: bytes) -> bool:
    """Whether an error says that nothing is left to pay with, or no call of this day."""
    named, said = _codes_and_words(body)
    return bool(_CREDIT_CODES.search(named) or _CREDIT_WORDS.search(said))


def _is_about_content(body: bytes) -> bool:
    return any(map(_CONTENT.search, _codes_and_words(body)))


def _codes_and_words(body: bytes) -> tuple[str, str]:
    """Return an error without its message, and the message, in lower case."""
    error = _error_of(body)
    if not isinstance(error, Mapping):
        return "", str(error or "").lower()
    return str({**error, "message": ""}).lower(), str(error.get("message", "")).lower()


def _error_of(body: bytes) -> Any:
    try:
        value = parse(body)
    except ValueError:
        return None
    if isinstance(value, list) and value:  # as Google's OpenAI endpoint
        value = value[0]
    return value.get("error") if isinstance(value, dict) else None


def _reason(endpoint: Endpoint, body: bytes) -> str:
    """Return what the provider says is wrong: its message, else the start of the body."""
    error = _error_of(body)
    message, named = error, None
    if isinstance(error, Mapping):
        message, named = error.get("message"), error.get("param")
    if isinstance(message, str) and isinstance(named, str) and named not in message:
        message = f"{message} ({named})"
    text = message.encode(errors="replace") if isinstance(message, str) and message else body
    return excerpt(text, secrets_of(endpoint))


def _hint(endpoint: Endpoint, url: str, status: int, headers: Mapping[str, str]) -> str:
    bare = _visible_url(endpoint, url)
    if status == 404:
        if endpoint.protocol == "http":
            return f" (asked {bare}; check url)"
        return f" (asked {bare}; check base_url ({endpoint.base_url}) and the model's name)"
    if 300 <= status < 400:
        target = headers.get("location", "").partition("?")[0]
        return f" (redirects are not followed; {bare} points to {target or 'nowhere'})"
    if status == 407:
        return " (the answer of the proxy; check its user and password in HTTPS_PROXY)"
    if status == 401 and endpoint.api_key is None and endpoint.protocol != "http":
        return " (no key was sent; give the target `api_key: ${{ NAME }}`)"
    return ""
