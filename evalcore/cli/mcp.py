"""`evalcore mcp`: the tools of saved evals over standard input and output."""

from __future__ import annotations

import asyncio
import os

import click
from click.core import ParameterSource

from evalcore.cli.evals import server_option
from evalcore.cli.options import settings, store_option
from evalcore.errors import UsageError


@click.command()
@server_option
@click.option(
    "--database",
    metavar="URL",
    help="Serve this database in this process: sqlite:///FILE or postgresql://…",
)
@store_option
@click.pass_context
def mcp(context: click.Context, server: str, database: str | None, store: str | None) -> None:
    """Serve saved evals as MCP tools over standard input and output.

    Without --database and --store the tools call a running service.
    """
    try:
        import mcp as _  # noqa: F401
    except ImportError:
        from evalcore.service.errors import NEEDS_EXTRA

        raise UsageError(NEEDS_EXTRA) from None
    if database is None and store is None:
        from evalcore.service.mcp import serve_remote

        asyncio.run(serve_remote(server, os.environ.get("EVALCORE_TOKEN") or None))
        return
    if context.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise UsageError("--server excludes --database and --store")
    asyncio.run(_serve_embedded(database, store))


async def _serve_embedded(database: str | None, store: str | None) -> None:
    from evalcore.service.auth import Caller, Scope
    from evalcore.service.mcp import serve_stdio
    from evalcore.service.serve import DEFAULT_DATABASE, ServeOptions, embedded_service

    options = ServeOptions(
        store=store,
        database=database or os.environ.get("EVALCORE_DATABASE") or DEFAULT_DATABASE,
        insecure=True,
    )
    async with embedded_service(options, settings()) as service:
        await serve_stdio(service, Caller(Scope.ADMIN))
