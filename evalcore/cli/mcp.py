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
    from evalcore.service.mcp.mounting import NEEDS_EXTRA

    try:
        import mcp as _  # noqa: F401
    except ImportError:
        raise UsageError(NEEDS_EXTRA) from None
    if database is None and store is None:
        asyncio.run(_serve_remote(server))
        return
    if context.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise UsageError("--server excludes --database and --store")
    asyncio.run(_serve_embedded(database, store))


async def _serve_remote(server: str) -> None:
    from evalcore.client.clients import AsyncClient
    from evalcore.client.tool_calls import RemoteService
    from evalcore.service.mcp.stdio import serve_stdio

    async with AsyncClient(server, os.environ.get("EVALCORE_TOKEN") or None) as client:
        await serve_stdio(RemoteService(client).perform)


async def _serve_embedded(database: str | None, store: str | None) -> None:
    from evalcore.service.embedded import embedded_service
    from evalcore.service.mcp.stdio import serve_stdio
    from evalcore.service.serve import DEFAULT_DATABASE, ServeOptions

    options = ServeOptions(
        store=store,
        database=database or os.environ.get("EVALCORE_DATABASE") or DEFAULT_DATABASE,
        insecure=True,
        requests_per_second=0,
    )
    async with embedded_service(options, settings()) as exchange:
        await serve_stdio(lambda request, _: exchange.send(request))
