"""Which addresses may be asked, and what the environment says of proxies."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from evalcore.errors import SettingsError
from evalcore.trust.secrets import REFERENCE

_PORTS: Final = {"http": 80, "https": 443}
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_DOTS: Final = frozenset({".", ".."})


def is_allowed_address(address: str, allowed: Iterable[str]) -> bool:
    """Whether a web address lies at or below one of those allowed.

    One that begins with `${{ NAME }}`, without a default, is what this process's own environment
    says, as long as nothing but a path follows.
    """
    reference = REFERENCE.match(address)
    if reference is not None and reference[2] is None:
        rest = address[reference.end() :]
        return not rest or (rest.startswith("/") and _is_plain_path(rest))
    return any(_is_below(address, base) for base in allowed)


def _is_below(address: str, base: str) -> bool:
    try:
        split, other = urlsplit(address.strip()), urlsplit(base.strip())
        same = _origin(split) == _origin(other)
    except ValueError:
        return False
    if not same or "@" in split.netloc or "{" in split.netloc or "\\" in address:
        return False
    return _is_plain_path(split.path) and _starts_with(split.path, other.path)


def _origin(split: SplitResult) -> tuple[str, str | None, int | None]:
    scheme = split.scheme.lower()
    if scheme not in _PORTS or not split.hostname:
        raise ValueError("no web address")
    return scheme, split.hostname, split.port or _PORTS[scheme]


def _is_plain_path(path: str) -> bool:
    """Whether no part of a path means another folder, in any spelling."""
    parts = re.split(r"[/\\]", unquote(unquote(path.partition("?")[0])))
    return _DOTS.isdisjoint(parts)


def _starts_with(path: str, base: str) -> bool:
    prefix = base.strip("/")
    return not prefix or f"{path.strip('/')}/".startswith(f"{prefix}/")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not of this machine, network or a group.

    An IPv6 address that leads to an IPv4 address is what that one is.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        last = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        inner = ip.ipv4_mapped or ip.sixtofour or (last if ip in _NAT64 else None)
        if ip.is_site_local or ip.teredo is not None:
            return False
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


def is_local(host: str) -> bool:
    """Whether a host's name means this machine."""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")  # noqa: S104


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; none for this machine.

    Raises `SettingsError` for a proxy that is no address of HTTP. aiohttp's own way would also
    send what `.netrc` says of the host.
    """
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    proxy = proxies.get(parts.scheme, proxies.get("all"))
    if not proxy or is_local(host) or proxy_bypass(f"{host}:{port}"):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy.removeprefix('//')}"
    try:
        _origin(urlsplit(proxy))
    except ValueError as error:
        message = f"'{shown_proxy(proxy)}' is no HTTP proxy; write http://HOST:PORT in HTTPS_PROXY"
        raise SettingsError(message) from error
    return proxy


def shown_proxy(proxy: str) -> str:
    """Return the address of a proxy as messages name it, without credentials."""
    return proxy.rpartition("@")[2].rpartition("//")[2]
