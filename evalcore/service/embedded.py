"""A service inside this process, with its workers and without a port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evalcore.service.app import create_application
from evalcore.service.db import open_database, upgrade
from evalcore.service.mcp.exchange import ApplicationExchange
from evalcore.service.serve import ServeOptions, service_parts
from evalcore.settings import Settings


@asynccontextmanager
async def embedded_service(
    options: ServeOptions, settings: Settings
) -> AsyncIterator[ApplicationExchange]:
    """Start a service and yield the way to it; stop it at the end of the context."""
    database = open_database(options.database)
    await upgrade(database)
    application = create_application(await service_parts(options, settings, database))
    async with application.router.lifespan_context(application):
        yield ApplicationExchange(application)
