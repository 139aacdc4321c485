"""Start the service: its parts from the settings, its application, a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn

from evalcore.errors import UsageError
from evalcore.pipeline.executors import find_configured_runner
from evalcore.service.app import create_application
from evalcore.service.auth import Caller, RateLimiter, Scope, Tokens, is_loopback
from evalcore.service.context import Context
from evalcore.service.db import Database, open_database, upgrade
from evalcore.service.log import set_up_logging
from evalcore.service.worker import EvalWorker, WorkflowWorker
from evalcore.settings import Settings
from evalcore.storage.address import open_store
from evalcore.viewer.app import listen

DEFAULT_DATABASE = "evalcore.db"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How the service is reached, and what it keeps its things in."""

    host: str = "127.0.0.1"
    port: int = 8321
    store: str | None = None
    database: str = DEFAULT_DATABASE
    insecure: bool = False
    requests_per_second: float = 100.0
    runs_at_once: int = 4


def serve(options: ServeOptions, settings: Settings) -> None:
    """Run the service until it is stopped. Raises `UsageError`."""
    if options.insecure and not is_loopback(options.host):
        raise UsageError(
            f"--insecure is for loopback addresses only, not for {options.host}: without it, "
            "`evalcore tokens create` makes a token"
        )
    asyncio.run(_serve(options, settings))


async def _serve(options: ServeOptions, settings: Settings) -> None:
    set_up_logging(settings.log)
    listening = listen(options.host, options.port)
    database = open_database(options.database)
    await upgrade(database)
    application = create_application(open_context(options, settings, database))
    config = uvicorn.Config(
        application,
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        # Longer than a load balancer keeps a connection: it would send into one just closed.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    await uvicorn.Server(config).serve([listening])


def open_context(options: ServeOptions, settings: Settings, database: Database) -> Context:
    """Return what a service has whose database is migrated."""
    context = Context(
        database=database,
        store=open_store(options.store or settings.store),
        tokens=Tokens(database),
        rates=RateLimiter(options.requests_per_second),
        open_to=Caller(Scope.ADMIN) if options.insecure else None,
    )
    runner, at_once = find_configured_runner(), options.runs_at_once
    context.workers = [
        EvalWorker(context, settings, at_once, runner),
        WorkflowWorker(context, settings, at_once),
    ]
    return context


@asynccontextmanager
async def embedded_service(options: ServeOptions, settings: Settings) -> AsyncIterator[Context]:
    """Run the workers of a service in this process, without a port."""
    database = open_database(options.database)
    await upgrade(database)
    context = open_context(options, settings, database)
    await context.start()
    try:
        yield context
    finally:
        await context.stop()
