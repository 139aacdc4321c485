"""Requests that reach the internet and allowed addresses only, also after redirects and by DNS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Collection

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from evalcore.model.exchange import ProviderError
from evalcore.network import proxy_for
from evalcore.providers.registry import open_session
from evalcore.trust.addresses import is_allowed_address, is_public


class PublicAddresses(AbstractResolver):
    """Resolves names to public addresses; connections are made to what was checked.

    `allowed` are addresses, with everything below them, that may be called wherever they lead.
    `refused` makes the error of a reason.
    """

    def __init__(self, allowed: Collection[str], refused: Callable[[str], ProviderError]) -> None:
        self._allowed = allowed
        self._refused = refused
        self._resolver = ThreadedResolver()
        self._is_allowed = False

    def session(self) -> aiohttp.ClientSession:
        """Return a session for one request and its redirects; no connection is used again."""
        return open_session(resolver=self, force_close=True, use_dns_cache=False)

    async def admit(self, url: str) -> None:
        """Prepare for a request to `url`; raise `ProviderError` for one that may not be called."""
        try:
            sent = URL(url)  # as the session reads it: digits of full width are digits
        except ValueError as error:
            raise self._refused(f"'{url}' is no URL that can be called: {error}") from error
        self._is_allowed = is_allowed_address(str(sent), self._allowed)
        host = sent.host or ""
        if self._is_allowed:
            return
        try:
            self._check(host, [str(ipaddress.ip_address(host))])
        except ValueError:  # a name: it is resolved when the connection is made
            if proxy_for(url) is not None:
                self._is_allowed = True  # what is resolved then is the proxy
                self._check(host, await _addresses_of(host))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raise `ProviderError` if one is not public."""
        results = await self._resolver.resolve(host, port, family)
        if not self._is_allowed:
            self._check(host, [result["host"] for result in results])
        return results

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()

    def _check(self, host: str, addresses: Collection[str]) -> None:
        if not addresses:
            reason = "cannot be resolved here: whether its address is public is unknown"
        elif not all(map(is_public, addresses)):
            reason = "is not a public address"
        else:
            return
        raise self._refused(f"'{host}' {reason} (EVALCORE_ALLOW_ADDRESSES allows it)")


async def _addresses_of(host: str) -> list[str]:
    try:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(entry[4][0]) for entry in entries]
