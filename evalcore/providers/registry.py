"""The table of wire protocols, and one attempt of a request by the protocol it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import UsageError
from evalcore.jsonvalues import storable
from evalcore.model.exchange import ProviderError, Reply, Request
from evalcore.providers.failures import cleaned_reply, cleaned_text, secrets_of
from evalcore.wording import suggest

if TYPE_CHECKING:
    import aiohttp

    Connections = aiohttp.ClientSession

PROTOCOLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "anthropic": "evalcore.providers.anthropic",
        "http": "evalcore.providers.http",
        "openai": "evalcore.providers.openai",
        "openai-embeddings": "evalcore.providers.embeddings",
    }
)


async def send(session: Connections, request: Request) -> Reply:
    """Make one attempt and return the reply; its cost is set only if the provider told it.

    Raise `ProviderError` whose kind says why there is none. Neither holds a secret of the
    endpoint, even where the provider repeats it.
    """
    protocol, secrets = request.endpoint.protocol, secrets_of(request.endpoint)
    if protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol '{protocol}'.{suggest(protocol, PROTOCOLS)}")
    client: Any = import_module(PROTOCOLS[protocol])
    try:
        reply: Reply = await client.call(session, request)
    except ProviderError as error:
        message = cleaned_text(error.message, secrets)
        raise ProviderError(error.kind, message, error.status, error.retry_after_s) from None
    return cleaned_reply(_storable(reply), secrets)


def _storable(reply: Reply) -> Reply:
    """Return the reply without what JSON cannot hold, which its notes tell; mostly the same."""
    events = [event.data for event in reply.events]
    parts = (reply.text, reply.model, reply.finish_reason, list(reply.tool_calls), events)
    clean, notes = storable(parts)
    if clean is parts:
        return reply
    text, model, reason, calls, data = clean
    return replace(
        reply,
        text=text,
        model=model,
        finish_reason=reason,
        tool_calls=tuple(calls),
        events=tuple(
            event._replace(data=value) for event, value in zip(reply.events, data, strict=True)
        ),
        notes=notes,
    )


def open_session(**connector_options: Any) -> Connections:
    """Return a session for any number of requests at once, to be used as an async context.

    It keeps connections open and resolves each host once in five minutes. It sets no time limit:
    each request brings its own. `connector_options` replace its connector's. Call it inside a
    running event loop.
    """
    import aiohttp

    from evalcore.providers.transport import sending_times

    options: dict[str, Any] = {"limit": 0, "ttl_dns_cache": 300, "keepalive_timeout": 30}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(**(connector_options or options)),
        trace_configs=[sending_times()],
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
