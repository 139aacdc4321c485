"""Serve the viewer on this machine until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware

from evalcore.errors import UsageError
from evalcore.storage.store import ObjectStore
from evalcore.viewer.application import create_viewer
from evalcore.viewer.site import Site

_HOST: Final = "127.0.0.1"
# A name that is rebound to this machine would let another site's page read this one.
_HOSTS: Final = ("127.0.0.1", "localhost")


def serve_viewer(store: ObjectStore, port: int, announce: Callable[[str], None]) -> None:
    """Serve the pages on loopback; `announce` is called with their address once it answers.

    Port 0 takes any free one. Raises `UsageError` if the port is taken.
    """
    site = Site(store)
    application = create_viewer(site)
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))
    listening = _listen(port)
    announce(f"http://{_HOST}:{listening.getsockname()[1]}/")
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )
    _Server(config, site).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that ends the pages' streams before it waits for its requests to end."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server."""
        self._site.live.close()
        await super().shutdown(sockets)


def _listen(port: int) -> socket.socket:
    # asyncio sends at once (TCP_NODELAY) on sockets that name their protocol only.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port} of {_HOST} cannot be used: {error.strerror}; --port 0 takes a free one"
        ) from error
    listening.listen()
    return listening
