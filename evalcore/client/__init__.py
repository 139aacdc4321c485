"""A typed client of the service."""

from __future__ import annotations

from evalcore.client.client import Client, ServiceRefusedError

__all__ = ["Client", "ServiceRefusedError"]
