"""A typed client of the service: `Client` and `AsyncClient` with the same methods."""

from __future__ import annotations

from evalcore.client.clients import AsyncClient, Client
from evalcore.client.failure import ServiceRefusedError

__all__ = ["AsyncClient", "Client", "ServiceRefusedError"]
