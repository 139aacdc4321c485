"""Start the service: its parts from the settings, its application, a server."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass

import uvicorn

from evalcore.errors import UsageError
from evalcore.pipeline.executors import find_configured_runner
from evalcore.service.app import create_application
from evalcore.service.auth import RateLimiter, Tokens, is_loopback
from evalcore.service.context import LEASE_S, RUNS_AT_ONCE, Parts, open_caller
from evalcore.service.db import Database, open_database, upgrade
from evalcore.service.log import set_up_logging
from evalcore.service.worker import EvalWorker, WorkflowWorker
from evalcore.settings import Settings
from evalcore.storage.address import open_store

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
    runs_at_once: int = RUNS_AT_ONCE
    lease_s: float = LEASE_S
    allowed_hosts: tuple[str, ...] = ()


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
    listening = _listening(options.host, options.port)
    database = open_database(options.database)
    await upgrade(database)
    parts = await service_parts(options, settings, database)
    application = create_application(parts)
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


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; raise `UsageError` if it cannot be, before all else."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is taken; choose another by --port") from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listening


async def service_parts(options: ServeOptions, settings: Settings, database: Database) -> Parts:
    """Return the parts of a service whose database is migrated."""
    parts = Parts(
        database=database,
        store=open_store(options.store or settings.store),
        tokens=Tokens(database),
        rates=RateLimiter(options.requests_per_second),
        open_to=await open_caller(database) if options.insecure else None,
        allowed_hosts=options.allowed_hosts,
        lease_s=options.lease_s,
    )
    runner = find_configured_runner()
    at_once = range(options.runs_at_once)
    parts.workers = [
        *(EvalWorker(parts, settings, runner) for _ in at_once),
        *(WorkflowWorker(parts, settings) for _ in at_once),
    ]
    return parts
