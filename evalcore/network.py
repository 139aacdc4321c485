"""What the environment says of proxies and certificates, for all that this process asks."""

from __future__ import annotations

import ipaddress
import os
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from evalcore.errors import SettingsError

if TYPE_CHECKING:
    from ssl import SSLContext

CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PORTS: Final = {"http": 80, "https": 443}


class Proxy(NamedTuple):
    """A proxy's address, credentials included, and the variable that names it."""

    url: str
    variable: str

    def __str__(self) -> str:
        """Return the proxy as messages name it, without credentials."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]} ({self.variable})"


def is_local(host: str) -> bool:
    """Whether a host's name means this machine."""
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")  # noqa: S104


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy that the environment names for a URL; none for this machine.

    Raises `SettingsError` for a proxy that is no address of HTTP. aiohttp's own way would also
    send what `.netrc` says of the host.
    """
    parts = urlsplit(url)
    host, scheme = parts.hostname or "", parts.scheme
    if is_local(host) or _is_excluded(host, parts.port or _PORTS.get(scheme, 0)):
        return None
    named = _named_proxy(scheme, os.environ)
    if named is None:
        return None
    value, variable = named
    proxy = Proxy(value if "://" in value else f"http://{value.removeprefix('//')}", variable)
    try:
        address = urlsplit(proxy.url)
        sound = bool(address.hostname) and (address.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or address.scheme not in _PORTS:
        host_port = value.rpartition("@")[2]
        raise SettingsError(
            f"{variable}: '{host_port}' is no HTTP proxy; write http://HOST:PORT, or name the "
            "hosts that need no proxy in NO_PROXY"
        )
    return proxy


def _named_proxy(scheme: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the proxy of a scheme and its variable; an empty variable means no proxy."""
    for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"):
        if name in environment:
            value = environment[name].strip()
            return (value, name) if value else None
    of_system = urllib.request.getproxies().get(scheme)
    return (of_system, "the system's settings") if of_system else None


def _is_excluded(host: str, port: int) -> bool:
    """Whether NO_PROXY has the host: by name, domain, `host:port`, network, or `*`."""
    written = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    entries = written.replace(",", " ").lower().split()
    return any(_is_meant(entry, host, port) for entry in entries) or bool(
        not written and urllib.request.proxy_bypass(host)
    )


def _is_meant(entry: str, host: str, port: int) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    name, _, number = entry.rpartition(":")
    if name and number.isdigit():
        if int(number) != port:
            return False
        entry = name
    domain = entry.removeprefix("*").removeprefix(".").strip("[]")
    return entry == "*" or host == domain or (bool(domain) and host.endswith(f".{domain}"))


def tls_context() -> SSLContext | None:
    """Return what trusts the environment's certificates, beside the system's; None if it has none.

    Raises `SettingsError` for a file or folder that cannot be read.
    """
    written = [(name, os.environ[name]) for name in CERTIFICATES if os.environ.get(name)]
    return _context(tuple(written)) if written else None


@lru_cache(maxsize=4)
def _context(written: tuple[tuple[str, str], ...]) -> SSLContext:
    import ssl

    context = ssl.create_default_context()
    for name, path in written:
        location = Path(path).expanduser()
        try:
            if location.is_dir():
                context.load_verify_locations(capath=location)
            else:
                context.load_verify_locations(cafile=location)
        except OSError as error:  # ssl's own are, too
            reason = getattr(error, "reason", None) or error.strerror or error
            raise SettingsError(f"{name}: no certificates in {path}: {reason}") from error
    return context
