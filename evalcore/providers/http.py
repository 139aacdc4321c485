"""A plain HTTP request: the body of the answer is the reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalcore.jsonvalues import decoded
from evalcore.model.exchange import ErrorKind, Reply, Request
from evalcore.providers.failures import failed
from evalcore.providers.transport import Received, Sent, exchange, json_body

if TYPE_CHECKING:
    import aiohttp


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:
    """Return the answer's body as text; raise `ProviderError` for a status of 300 or more.

    A body that is not text is sent as JSON. Redirects are not followed where
    secret headers, or a URL with a secret in it, would go with them (transport.redirected).
    """
    parameters = request.parameters
    url = request.endpoint.filled(str(parameters.get("url") or request.endpoint.base_url))
    body, headers = _body_of(request, url, parameters.get("body"))
    public = {str(name): str(value) for name, value in (parameters.get("headers") or {}).items()}
    headers = _laid_over(_laid_over(headers, public), request.endpoint.headers)
    method = str(parameters.get("method") or ("GET" if body is None else "POST")).upper()
    secret = bool(request.endpoint.headers or request.endpoint.values)
    if any(reference == value for reference, value in request.endpoint.values.items()):
        what = "a variable of its headers or address is not set in this process"
        raise failed(request.endpoint, url, ErrorKind.REQUEST, what)
    sent = Sent(method, url, headers, body, follow=not secret)
    received = await _received(session, request, sent)
    return Reply(
        text=decoded(received.body, received.charset),
        latency_ms=received.latency_ms,
        status=received.status,
    )


async def _received(session: aiohttp.ClientSession, request: Request, sent: Sent) -> Received:
    if request.allowed_addresses is None:
        return await exchange(session, request, sent)
    from evalcore.providers.public_addresses import PublicAddresses

    addresses = PublicAddresses(
        request.allowed_addresses,
        lambda what: failed(request.endpoint, sent.url, ErrorKind.REQUEST, what),
    )
    async with addresses.session() as own:
        return await exchange(own, request, sent, admit=addresses.admit)


def _body_of(request: Request, url: str, body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), {"Content-Type": "text/plain; charset=utf-8"}
    return json_body(request, url, body), {"Content-Type": "application/json"}


def _laid_over(headers: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower() for name in over}
    return {**{name: value for name, value in headers.items() if name.lower() not in named}, **over}
