"""Models of Azure, Bedrock, Vertex AI and others, by any-llm-sdk (extra `any-llm`).

The adapter makes one attempt: retries, limits, recordings and prices are the engine's, as for the
built-in protocols. The provider's SDK looks for credentials in the environment, unless the target
has an address or a key of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import SettingsError
from evalcore.model.exchange import ErrorKind, ProviderError, Reply, Request
from evalcore.providers.failures import cleaned_text, kind_of_status, named_in, retry_after_s
from evalcore.providers.openai import OpenAIStream, payload_of, reply_of
from evalcore.providers.transport import RAISED_BY, Received, ServerSent
from evalcore.trust.network import CERTIFICATES, Proxy, proxy_for

if TYPE_CHECKING:
    import aiohttp

CLIENT: Final = "client"
_INSTALL: Final = "install the extra: pip install 'evalcore-pipeline[any-llm]'"
# A target's own address never gets a key that the environment has for the provider's.
_NO_KEY: Final = "none"
_SECRET_WORDS: Final = ("KEY", "TOKEN", "SECRET")
_SHORTEST_KEY: Final = 8
_TOO_MANY: Final = 429
_KINDS: Final[Mapping[str, ErrorKind]] = {
    "AuthenticationError": ErrorKind.AUTHENTICATION,
    "MissingApiKeyError": ErrorKind.AUTHENTICATION,
    "RateLimitError": ErrorKind.RATE,
    "ContentFilterError": ErrorKind.CONTENT,
    "GatewayTimeoutError": ErrorKind.TIMEOUT,
    "UpstreamProviderError": ErrorKind.SERVER,
    "ProviderError": ErrorKind.SERVER,
}


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:  # noqa: ARG001
    """Return the model's answer; raise `ProviderError`."""
    provider, _, model = request.model.partition(":")
    try:
        client = _client_of(request, provider)
        payload = {**payload_of(request), "model": model}
        payload.pop(CLIENT, None)
        async with asyncio.timeout(request.attempt_timeout_s):
            started = time.perf_counter()
            answer = await client.acompletion(**payload)
            if hasattr(answer, "__aiter__"):
                return await _streamed(request, answer, started)
            latency_ms = round((time.perf_counter() - started) * 1000, 1)
    except ProviderError:
        raise
    except TimeoutError as error:
        message = f"no answer within {request.attempt_timeout_s:g} s ({RAISED_BY})"
        raise _failed(request, ErrorKind.TIMEOUT, message) from error
    # Each provider's SDK has exceptions of its own.
    except Exception as error:
        raise _named(request, error) from error
    return reply_of(request, provider, Received(200, {}, _json(answer), None, latency_ms))


async def _streamed(request: Request, chunks: Any, started: float) -> Reply:
    stream = OpenAIStream(request, request.model)
    async for chunk in chunks:
        stream.take(ServerSent("", _json(chunk), round((time.perf_counter() - started) * 1000, 1)))
    return stream.reply(round((time.perf_counter() - started) * 1000, 1))


def _json(answer: Any) -> bytes:
    """Return an answer of any-llm as the JSON of OpenAI's API."""
    return json.dumps(answer.model_dump(mode="json", exclude_none=True)).encode()


def _client_of(request: Request, provider: str) -> Any:
    endpoint = request.endpoint
    key = endpoint.api_key or (_NO_KEY if endpoint.base_url else None)
    options = tuple(sorted(request.parameters.get(CLIENT, {}).items()))
    loop = asyncio.get_running_loop()
    return _client(loop, provider, key, endpoint.address or None, options)


@lru_cache(maxsize=32)
def _client(
    loop: asyncio.AbstractEventLoop,  # noqa: ARG001 - a client's connections belong to one loop
    provider: str,
    key: str | None,
    address: str | None,
    options: tuple[tuple[str, Any], ...],
) -> Any:
    """Return a client of any-llm that does not retry by itself."""
    try:
        any_llm = import_module("any_llm")
    except ImportError as error:
        message = f"any-llm is not installed ({error}); {_INSTALL}"
        raise ProviderError(ErrorKind.REQUEST, message, attempts=0) from error
    create, more = any_llm.AnyLLM.create, dict(options)
    try:
        return create(provider, key, address, unified_exceptions=True, max_retries=0, **more)
    except any_llm.exceptions.UnsupportedParameterError:  # an SDK without retries
        return create(provider, key, address, unified_exceptions=True, **more)


def _named(request: Request, error: Exception) -> ProviderError:
    """Return the error that an exception of any-llm, or of a provider's SDK, is."""
    status = getattr(error, "status_code", None)
    kind = _KINDS.get(type(error).__name__, ErrorKind.REQUEST)
    original = getattr(error, "original_exception", None)
    headers = _headers_of(error, original)
    codes = {"code": getattr(error, "code", None), "type": getattr(error, "error_type", None)}
    message = str(error).encode("utf-8", "replace").decode()
    body = orjson.dumps({"error": {**codes, "message": message}}, default=str)
    likely_status = _TOO_MANY if status is None and kind is ErrorKind.RATE else status
    if isinstance(likely_status, int) and likely_status >= 300 and kind is not ErrorKind.CONTENT:
        kind = kind_of_status(likely_status, body, headers)
    elif _is_broken_connection(original):
        kind = ErrorKind.CONNECTION
    text = " ".join(str(error).split()) or type(error).__name__
    if status is None and (on_the_way := _on_the_way(request, error)) is not None:
        kind, text = on_the_way
    if isinstance(error, ImportError):
        provider = request.model.partition(":")[0]
        text = f"{text}; install its SDK: pip install 'any-llm-sdk[{provider}]'"
    named = _failed(request, kind, text, status if isinstance(status, int) else None)
    named.retry_after_s = retry_after_s(headers, time.time())
    named.named = named_in(text.encode())
    return named


def _headers_of(error: Exception, original: object) -> dict[str, str]:
    """Return the headers of the answer that a provider's SDK made an exception of."""
    headers = getattr(getattr(original, "response", None), "headers", None)
    lowered = {}
    if isinstance(headers, Mapping):
        lowered = {str(name).lower(): str(value) for name, value in headers.items()}
    wait = getattr(error, "retry_after", None)
    return lowered if wait is None else {"retry-after": str(wait), **lowered}


def _is_broken_connection(error: object) -> bool:
    name = type(error).__name__
    return isinstance(error, OSError) or "Connect" in name or "Timeout" in name


def _on_the_way(request: Request, error: BaseException) -> tuple[ErrorKind, str] | None:
    """Return the kind and the words for what a proxy or a certificate did wrong."""
    proxy = _proxy(request)
    for problem in _causes(error):
        if isinstance(problem, ssl.SSLCertVerificationError):
            what = f"the certificate is not trusted: {problem.verify_message}; name the file of "
            return ErrorKind.REQUEST, f"{what}your authority in {CERTIFICATES[0]}"
        if isinstance(problem, ssl.SSLError):
            reason = problem.reason or problem
            return ErrorKind.REQUEST, f"no TLS: {reason}; does it speak https?"
        if type(problem).__name__ == "ProxyError":
            # A gateway's 502, 503 and 504 are about what lies behind it, and may pass.
            passes = str(problem).startswith("5")
            kind = ErrorKind.CONNECTION if passes else ErrorKind.REQUEST
            return kind, f"the proxy {proxy} refused the connection: {problem}"
        if proxy is not None and isinstance(problem, ConnectionRefusedError):
            what = f"no connection to the proxy {proxy}: {problem.strerror}; is it right? NO_PROXY "
            return ErrorKind.REQUEST, what + "names hosts that need none"
    return None


def _proxy(request: Request) -> Proxy | None:
    """Return the proxy of the environment that an SDK asks, as far as the address is known."""
    try:
        return proxy_for(request.endpoint.address or "https://unknown.invalid")
    except SettingsError:
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception of an SDK and what caused it, the innermost last."""
    met: list[BaseException] = []
    waiting = [error]
    while waiting:
        problem = waiting.pop()
        if isinstance(problem, BaseException) and problem not in met:
            met.append(problem)
            yield problem
            original = getattr(problem, "original_exception", None)
            waiting += [problem.__context__, problem.__cause__, original]


def _failed(
    request: Request, kind: ErrorKind, what: str, status: int | None = None
) -> ProviderError:
    message = f"{request.endpoint.provider} ({request.model}): {what}"
    return ProviderError(kind, cleaned_text(message, _environment_keys()), status)


def _environment_keys() -> frozenset[str]:
    """Return the keys in the environment that a provider's SDK may have read."""
    return frozenset(
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_KEY and any(word in name.upper() for word in _SECRET_WORDS)
    )
