"""What the environment says of proxies and certificates, for all that this process asks."""

from __future__ import annotations

import ipaddress
import os
import urllib.request
from contextlib import suppress
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
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    variable = next((name for name in names if name in os.environ), "the system's settings")
    value = os.environ.get(variable, urllib.request.getproxies().get(scheme, "")).strip()
    if not value:  # an empty variable means no proxy
        return None
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


def _is_excluded(host: str, port: int) -> bool:
    """Whether NO_PROXY has the host: by name, domain, `host:port`, network, or `*`."""
    written = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    entries = written.replace(",", " ").lower().split()
    if not entries:
        return bool(urllib.request.proxy_bypass(host))
    listed = {"no": ",".join(entry.replace("*.", ".") for entry in entries)}
    if urllib.request.proxy_bypass_environment(f"{host}:{port}", listed):  # type: ignore[attr-defined]  # typeshed lacks it
        return True
    for entry in entries:
        with suppress(ValueError):
            network = ipaddress.ip_network(entry.strip("[]"), strict=False)
            if ipaddress.ip_address(host) in network:
                return True
    return False


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
