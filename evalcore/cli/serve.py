"""`evalcore serve` and `evalcore tokens`: the service, and who may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import click

from evalcore.cli.interrupts import ended_by_interrupt
from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import json_option, settings, store_option

DATABASE_HELP = "sqlite:///FILE or postgresql://…  [evalcore.db]"
database_option = click.option(
    "--database",
    default="evalcore.db",
    envvar="EVALCORE_DATABASE",
    metavar="URL",
    help=DATABASE_HELP,
)


@click.group(invoke_without_command=True)
@click.option("--host", default="127.0.0.1", help="The address to listen on.  [127.0.0.1]")
@click.option("--port", default=8321, type=click.IntRange(0, 65535), help="The port.  [8321]")
@store_option
@database_option
@click.option("--insecure", is_flag=True, help="Without tokens; on a loopback address only.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name of this machine, with --insecure; repeatable.",
)
@click.option(
    "--rate",
    "requests_per_second",
    default=100.0,
    type=NumberRange(0),
    help="Requests per second of each token; 0 for no limit.  [100]",
)
@click.option(
    "--runs-at-once",
    default=4,
    type=click.IntRange(1, 64),
    help="How many runs of evals, and of workflows, it executes at once.  [4]",
)
@click.pass_context
def serve(context: click.Context, /, database: str, **options: Any) -> None:
    """Serve saved evals over REST until stopped; API documents at /docs."""
    from evalcore.service.serve import ServeOptions
    from evalcore.service.serve import serve as serve_until_stopped

    if context.invoked_subcommand is not None:
        context.obj = database
        return
    with ended_by_interrupt():
        serve_until_stopped(ServeOptions(database=database, **options), settings())


@serve.command()
@click.pass_obj
def migrate(database: str) -> None:
    """Bring the database to the present form of its tables, and end."""
    from evalcore.service.db import open_database, upgrade

    async def run() -> None:
        opened = open_database(database)
        await upgrade(opened)
        await opened.close()

    asyncio.run(run())
    click.echo("the database is up to date")


@click.group()
def tokens() -> None:
    """Create, list and revoke the tokens of the service."""


@tokens.command()
@database_option
@click.option(
    "--scope",
    default="evals",
    type=click.Choice(["read", "evals", "workflows", "admin"]),
    help="What it may do; each includes the ones before; 'workflows' is running code.  [evals]",
)
@click.option("--days", type=click.IntRange(min=1), help="It expires after so many days.")
@click.argument("name")
@json_option
def create(database: str, scope: str, days: int | None, name: str, as_json: bool) -> None:
    """Create the token NAME and print it: it is shown this once."""
    import orjson

    from evalcore.service.auth import Scope

    lifetime = None if days is None else timedelta(days=days)
    issued = _with_tokens(database, lambda own: own.issue(name, Scope(scope), lifetime))
    if as_json:
        click.echo(orjson.dumps({"id": issued.id, "token": issued.secret}).decode())
    else:
        click.echo(issued.secret)


@tokens.command("list")
@database_option
def list_tokens(database: str) -> None:
    """List the tokens, the newest first."""
    for row in _with_tokens(database, lambda own: own.list()):
        state = "revoked" if row.revoked_at else f"until {row.expires_at or 'revoked'}"
        click.echo(f"{row.id}  {row.scopes:9}  {row.name}  {state}")


@tokens.command()
@database_option
@click.argument("token_id")
def revoke(database: str, token_id: str) -> None:
    """Revoke a token by its id; it stops working within 5 seconds."""
    _with_tokens(database, lambda own: own.revoke(token_id))
    click.echo(f"revoked {token_id}")


def _with_tokens(database: str, call: Any) -> Any:
    from evalcore.errors import UsageError
    from evalcore.service.auth import Tokens
    from evalcore.service.db import open_database, upgrade
    from evalcore.service.errors import ServiceError

    async def run() -> Any:
        opened = open_database(database)
        try:
            await upgrade(opened)
            called: Coroutine[Any, Any, Any] = call(Tokens(opened))
            return await called
        except ServiceError as error:
            raise UsageError(str(error.detail)) from error
        finally:
            await opened.close()

    return asyncio.run(run())
