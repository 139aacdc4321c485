"""One HTTP exchange: what is sent and read, when, and which errors the network makes."""

from __future__ import annotations

import asyncio
import re
import time
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import aiohttp
import orjson
from aiohttp.http_exceptions import LineTooLong

from evalcore.errors import SettingsError
from evalcore.jsonvalues import parse
from evalcore.model.exchange import (
    NO_USAGE,
    ErrorKind,
    ProviderError,
    Reply,
    Request,
    StreamEvent,
    Usage,
)
from evalcore.providers.failures import check_key, failed, nonsense, parsed_answer, refused
from evalcore.trust.network import proxy_for


class WireTimes:
    """When the last byte of an exchange was sent, in seconds of `time.perf_counter`."""

    def __init__(self) -> None:
        self.sent_at = time.perf_counter()

    @property
    def elapsed_ms(self) -> float:
        """The time since then, to 0.1 ms."""
        return round((time.perf_counter() - self.sent_at) * 1000, 1)


def sending_times() -> aiohttp.TraceConfig:
    """Return what notes when the parts of a request go out: connections are no latency."""

    async def sent(_: object, request: SimpleNamespace, __: object) -> None:
        request.trace_request_ctx.sent_at = time.perf_counter()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    trace.on_request_chunk_sent.append(sent)
    return trace


_MOST_BYTES: Final = 64 << 20
_LONGEST_LINE: Final = 16 << 20
_MOST_REDIRECTS: Final = 10
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_AGENT: Final = "evalcore"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Sent(NamedTuple):
    """What goes over the wire; `follow` says whether redirects are followed."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    follow: bool = False


class Received(NamedTuple):
    """A successful answer, whole. `latency_ms` from the last byte sent to its last byte."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    charset: str | None
    latency_ms: float


class ServerSent(NamedTuple):
    """One event of a stream; `offset_ms` since the request was sent."""

    name: str
    data: bytes
    offset_ms: float


OnEvent = Callable[[ServerSent], None]
# Whether a proxy may be asked for a URL; raises `ProviderError` for one that may not be called.
Admit = Callable[[str], bool]


@lru_cache(maxsize=256)
def joined_url(base_url: str, path: str) -> str:
    """Return the URL of `path` below `base_url`, which may end with a slash, or with `path`."""
    parts = urlsplit(base_url)
    base = parts.path.rstrip("/")
    return parts._replace(path=base if base.endswith(path) else base + path).geturl()


def json_body(request: Request, url: str, payload: Any) -> bytes:
    """Return the payload as JSON; raise `ProviderError` for what JSON cannot hold."""
    try:
        return orjson.dumps(payload, option=orjson.OPT_NON_STR_KEYS, default=_plain)
    except TypeError as error:
        what = f"the request cannot be written as JSON: {error}"
        raise failed(request.endpoint, url, ErrorKind.REQUEST, what) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


async def exchange(
    session: aiohttp.ClientSession,
    request: Request,
    sent: Sent,
    on_event: OnEvent | None = None,
    admit: Admit | None = None,
) -> Received:
    """Return the whole answer of a successful status; raise `ProviderError` for anything else.

    With `on_event`, an event stream is handed over event by event and the body is empty; an
    answer of another media type is returned whole even then. `admit` is asked before each URL is
    called, those of redirects too; it raises `ProviderError`.
    """
    if _CONTROL.search("".join((*sent.headers, *sent.headers.values()))):
        # Neither shown nor sent: it may be a key that was read with its line's end.
        what = "a header (or the key) holds a line break or another control character"
        raise failed(request.endpoint, sent.url, ErrorKind.REQUEST, what)
    try:
        async with asyncio.timeout(request.attempt_timeout_s):
            return await _exchanged(session, request, sent, on_event, admit)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, SettingsError) as problem:
        raise _named(problem, request, sent.url) from problem


async def _exchanged(
    session: aiohttp.ClientSession,
    request: Request,
    sent: Sent,
    on_event: OnEvent | None,
    admit: Admit | None,
) -> Received:
    times = WireTimes()
    async with await _answered(session, sent, times, admit) as response:
        if not 200 <= response.status < 300:
            body = await _start_of(response)
            headers = {key.lower(): value for key, value in response.headers.items()}
            raise refused(request.endpoint, sent.url, response.status, headers, body)
        if on_event is not None and response.content_type == "text/event-stream":
            await _read_events(response, times, on_event)
            body = b""
        else:
            body = await _whole(response)
        return Received(response.status, response.headers, body, response.charset, times.elapsed_ms)


async def _answered(
    session: aiohttp.ClientSession, sent: Sent, times: WireTimes, admit: Admit | None
) -> aiohttp.ClientResponse:
    """Return the answer, of the last of at most ten redirects if they are followed; to be left."""
    for _ in range(_MOST_REDIRECTS):
        may_be_proxied = admit is None or admit(sent.url)
        response = await session.request(
            sent.method,
            sent.url,
            headers={"User-Agent": _AGENT, **sent.headers},
            data=sent.body,
            allow_redirects=False,
            proxy=proxy_for(sent.url) if may_be_proxied else None,
            trace_request_ctx=times,
        )
        try:
            onward = redirected(sent, response.status, response.headers.get("Location"))
        except ValueError:  # the Location is no URL
            response.release()
            raise
        if onward is None:
            return response
        async with response:
            sent = onward
    raise aiohttp.ClientResponseError(response.request_info, (), message="too many redirects")


def redirected(sent: Sent, status: int, location: str | None) -> Sent | None:
    """Return what is to be sent after an answer that redirects; None if it is not followed.

    Within a host (the same scheme and port, or from http to https) all goes on as HTTP says. To
    another one only a request without body and credentials in its URL goes on, without its headers.
    """
    if not sent.follow or status not in _REDIRECTS or not location:
        return None
    url = urljoin(sent.url, location)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return None
    method, body, headers = sent.method, sent.body, dict(sent.headers)
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {n: v for n, v in headers.items() if not n.lower().startswith("content-")}
    if not _is_same_host(sent.url, url):
        if body is not None or "@" in urlsplit(sent.url).netloc:
            return None
        headers = {}
    return Sent(method, url, headers, body, sent.follow)


def _is_same_host(before: str, after: str) -> bool:
    """Whether an address is as trustworthy as the one that leads to it."""
    old, new = urlsplit(before), urlsplit(after)
    if old.hostname != new.hostname:
        return False
    ports = {"http": 80, "https": 443}
    old_port = old.port or ports.get(old.scheme)
    new_port = new.port or ports.get(new.scheme)
    if old.scheme == new.scheme:
        return old_port == new_port
    return (old.scheme, old_port, new.scheme, new_port) == ("http", 80, "https", 443)


# Reasons for an answer's end by which it was held back.
_HELD_BACK: Final = {
    "content_filter": "the provider's content filter held the answer back",
    "refusal": "the provider held the answer back (refusal)",
}
RAISED_BY = "the timeout of the target; a larger one allows more"


def _named(problem: Exception, request: Request, url: str) -> ProviderError:
    """Return what the network did wrong as a `ProviderError`."""
    option = "url" if request.endpoint.protocol == "http" else "base_url"
    kind = ErrorKind.CONNECTION
    if isinstance(problem, SettingsError):
        kind, what = ErrorKind.REQUEST, str(problem)
    elif isinstance(problem, TimeoutError):
        bound_s = request.attempt_timeout_s
        limit = "the time limit" if bound_s is None else f"{bound_s:g} s"
        kind, what = ErrorKind.TIMEOUT, f"no complete answer within {limit} ({RAISED_BY})"
    elif isinstance(problem, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        kind = ErrorKind.REQUEST
        what = f"'{request.endpoint.base_url}' is no URL that can be called; check {option}"
    elif isinstance(problem, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        kind = ErrorKind.REQUEST
        what = f"no TLS with {problem.host}: {problem}; SSL_CERT_FILE names trusted certificates"
    elif isinstance(problem, aiohttp.ClientProxyConnectionError):
        kind, what = ErrorKind.REQUEST, f"no connection to {problem.host}:{problem.port}, the proxy"
    elif isinstance(problem, aiohttp.ClientConnectorError):
        reason = problem.os_error.strerror or problem.os_error
        what = f"no connection: {reason}; is {option} right? HTTPS_PROXY names a proxy"
    elif isinstance(problem, aiohttp.ClientPayloadError):
        what = "the answer was cut off"
    elif isinstance(problem, aiohttp.ClientResponseError):
        is_proxy = isinstance(problem, aiohttp.ClientHttpProxyError)
        kind = ErrorKind.REQUEST if is_proxy and problem.status < 500 else ErrorKind.SERVER
        begin = f"the proxy refused: {problem.status}" if is_proxy else "no sound HTTP:"
        what = f"{begin} {problem.message}"
    elif isinstance(problem, aiohttp.ClientError | OSError):
        what = f"the connection was lost ({type(problem).__name__})"
    else:
        # aiohttp's message would show the header's value.
        kind = ErrorKind.REQUEST
        what = "a header or the URL holds a character that HTTP does not allow"
    return failed(request.endpoint, url, kind, what)


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    content = response.content
    parts: list[bytes] = []
    size = 0
    while not content.at_eof():
        part = await content.readany()
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise _too_long(response, f"more than {_MOST_BYTES >> 20} MiB")
    return b"".join(parts)


async def _start_of(response: aiohttp.ClientResponse, limit: int = 64 << 10) -> bytes:
    """Return the start of an error's body, or what there is of it."""
    start = b""
    try:
        async for part in response.content.iter_any():
            start += part
            if len(start) >= limit:
                break
    except aiohttp.ClientError:
        pass  # the status says enough
    return start[:limit]


async def _read_events(
    response: aiohttp.ClientResponse, times: WireTimes, on_event: OnEvent
) -> None:
    """Hand over the events of a stream (WHATWG, Server-sent events)."""
    name, data = "", []
    is_first = True
    async for raw in _lines(response):
        line = raw.removeprefix(BOM_UTF8) if is_first else raw
        is_first = False
        field, _, value = line.rstrip(b"\r").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
        elif not field and not value:
            if data:
                on_event(ServerSent(name, b"\n".join(data), times.elapsed_ms))
            name, data = "", []
    if data:
        on_event(ServerSent(name, b"\n".join(data), times.elapsed_ms))


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, the last one even if it does not end."""
    size = 0
    while not response.content.at_eof():
        try:
            line = await response.content.readuntil(max_size=_LONGEST_LINE)
        except LineTooLong as error:
            raise _too_long(response, f"a line of more than {_LONGEST_LINE >> 20} MiB") from error
        size += len(line)
        if size > _MOST_BYTES:
            raise _too_long(response, f"more than {_MOST_BYTES >> 20} MiB")
        yield line.removesuffix(b"\n")


def _too_long(response: aiohttp.ClientResponse, message: str) -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(response.request_info, (), message=message)


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


def bearer(request: Request) -> dict[str, str]:
    """Return the header that has the key in OpenAI's protocol, none without a key."""
    key = request.endpoint.api_key
    return {"Authorization": f"Bearer {key}"} if key else {}


async def ask(
    session: aiohttp.ClientSession, answer: AnswerStream, payload: Any, headers: Mapping[str, str]
) -> Reply:
    """Send a request to a model and return its answer, streamed or not; raise `ProviderError`."""
    request, url = answer.request, answer.url
    check_key(request.endpoint, url)
    body = json_body(request, url, payload)
    sent = Sent("POST", url, {**headers, **wire_headers(request)}, body)
    received = await exchange(session, request, sent, answer.take if request.stream else None)
    # A server without streams answers whole.
    if request.stream and not received.body:
        return answer.reply(received.latency_ms)
    return answer.whole_reply(received)


# What reading a part raises that has another shape; an answer is never guessed from it.
_OTHER_SHAPE: Final = (AttributeError, LookupError, TypeError, ValueError)


@dataclass(slots=True)
class AnswerStream:
    """Puts an answer together from its events."""

    request: Request
    url: str
    model: str = ""
    usage: Usage = NO_USAGE
    cost_usd: float | None = None
    reason: str | None = None
    ttft_ms: float | None = None
    has_begun: bool = False
    complete: bool = False
    events: list[StreamEvent] = field(default_factory=list)

    def take(self, sent: ServerSent) -> None:
        """Take one event; raise `ProviderError` if it tells a failure or is senseless."""
        endpoint = self.request.endpoint
        data = parsed_answer(endpoint, self.url, sent.data, "an event of the answer")
        if not isinstance(data, dict):
            raise nonsense(endpoint, self.url, "an event of the answer is no object", sent.data)
        self.events.append(StreamEvent(len(self.events), sent.offset_ms, data))
        try:
            self.take_data(data, sent)
        except _OTHER_SHAPE as error:
            what = "an event of the answer has another shape"
            raise nonsense(endpoint, self.url, what, sent.data) from error

    def take_data(self, data: Mapping[str, Any], sent: ServerSent) -> None:
        """Take what an event holds; raise `TypeError` or its likes for another shape."""
        raise NotImplementedError

    def reply(self, latency_ms: float) -> Reply:
        """Return the whole answer; raise `ProviderError` if it was cut off."""
        raise NotImplementedError

    def whole_reply(self, received: Received) -> Reply:
        """Return the reply that an answer without events is; raise `ProviderError`."""
        endpoint, body = self.request.endpoint, received.body
        data = parsed_answer(endpoint, self.url, body, "the answer", received.charset)
        try:
            return self.take_whole(data, received)
        except _OTHER_SHAPE as error:
            what = "the answer has another shape"
            raise nonsense(endpoint, self.url, what, body) from error

    def take_whole(self, data: Any, received: Received) -> Reply:
        """Return the reply that the answer's JSON is; raise `TypeError` or its likes."""
        raise NotImplementedError

    def whole(
        self, text: str, calls: Sequence[Mapping[str, Any]], latency_ms: float, status: int = 200
    ) -> Reply:
        """Return the whole answer; raise `ProviderError` if the provider held it back."""
        if self.reason in _HELD_BACK and not text and not calls:
            what = _HELD_BACK[self.reason]
            raise failed(self.request.endpoint, self.url, ErrorKind.CONTENT, what, 200)
        return Reply(
            text=text,
            model=self.model or self.request.model,
            tool_calls=tuple(calls),
            usage=self.usage,
            cost_usd=self.cost_usd,
            latency_ms=latency_ms,
            ttft_ms=self.ttft_ms,
            finish_reason=self.reason,
            status=status,
            events=tuple(self.events),
        )

    def check_whole(self, beginning: str) -> None:
        """Raise `ProviderError` if the stream was cut off, or never had its `beginning`."""
        if not self.complete:
            kind, what = ErrorKind.CONNECTION, "before the answer did"
        elif not self.has_begun:
            kind, what = ErrorKind.SERVER, f"without {beginning}"
        else:
            return
        raise failed(self.request.endpoint, self.url, kind, f"the stream ended {what}", 200)
