"""`evalcore serve`, `tokens`, `evals`, `mcp`, `view`: the service and the viewer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from evalcore.cli.options import (
    NumberRange,
    chosen_store,
    ended_by_interrupt,
    json_option,
    settings,
    store_option,
)
from evalcore.cli.output import say
from evalcore.errors import ExitCode, StoreError, UsageError
from evalcore.wording import counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from evalcore.client import Client


DATABASE_HELP = "sqlite:///FILE or postgresql://…  [evalcore.db]"
database_option = click.option(
    "--database",
    default="evalcore.db",
    envvar="EVALCORE_DATABASE",
    metavar="URL",
    help=DATABASE_HELP,
)


@click.command()
@click.option("--host", default="127.0.0.1", help="The address to listen on.  [127.0.0.1]")
@click.option("--port", default=8321, type=click.IntRange(0, 65535), help="The port.  [8321]")
@store_option
@database_option
@click.option("--insecure", is_flag=True, help="Without tokens; on a loopback address only.")
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
def serve(**options: Any) -> None:
    """Serve saved evals over REST until stopped; API documents at /docs."""
    from evalcore.service.serve import ServeOptions
    from evalcore.service.serve import serve as serve_until_stopped

    if not options["insecure"]:
        _require_extra()
    with ended_by_interrupt():
        serve_until_stopped(ServeOptions(**options), settings())


@click.group()
def tokens() -> None:
    """Create, list and revoke the tokens of the service."""


@tokens.command("create")
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


@tokens.command("revoke")
@database_option
@click.argument("token_id")
def revoke(database: str, token_id: str) -> None:
    """Revoke a token by its id; it stops working within 5 seconds."""
    _with_tokens(database, lambda own: own.revoke(token_id))
    click.echo(f"revoked {token_id}")


def _require_extra() -> None:
    """Raise `UsageError` where the packages for tokens are not installed."""
    from importlib.util import find_spec

    if find_spec("argon2") is None:
        extra = "pip install 'evalcore-pipeline[service]'"
        raise UsageError(f"a service with tokens needs the extra 'service': {extra}")


def _with_tokens(database: str, call: Any) -> Any:
    from evalcore.errors import UsageError
    from evalcore.service.auth import Tokens
    from evalcore.service.db import open_database, upgrade
    from evalcore.service.errors import ServiceError

    _require_extra()

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


server_option = click.option(
    "--server",
    envvar="EVALCORE_SERVICE",
    default="http://127.0.0.1:8321",
    metavar="URL",
    help="The service; its token is EVALCORE_TOKEN.  [http://127.0.0.1:8321]",
)


@click.group()
@server_option
@click.pass_context
def evals(context: click.Context, server: str) -> None:
    """Create, list, run saved evals of a service."""
    context.obj = server


def _pass_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Call the command with a client of the service; help imports none."""

    def called(context: click.Context, /, **flags: Any) -> Any:
        from evalcore.client import Client

        with Client(context.obj, os.environ.get("EVALCORE_TOKEN") or None) as client:
            return command(client, **flags)

    return click.pass_context(update_wrapper(called, command))


_file_argument = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_eval_argument = click.argument("eval_id", metavar="EVAL")
_workflow_argument = click.argument("workflow_id", metavar="WORKFLOW")


@evals.command("create")
@_file_argument
@_pass_client
def create_eval(client: Client, file: Path) -> None:
    """Save the eval of FILE (JSON or YAML, as the API takes it)."""
    from evalcore.service.models import CreateEval

    _show(client.evals.create(**_body(CreateEval, file)))


@evals.command("list")
@_workflow_argument
@json_option
@_pass_client
def list_evals(client: Client, workflow_id: str, as_json: bool) -> None:
    """List the evals of a workflow with their drift and their latest outcome."""
    for row in client.evals.list(workflow_id):
        if as_json:
            click.echo(row.model_dump_json(by_alias=True))
            continue
        latest = row.latest_run_summary
        outcome = "never run" if latest is None else latest.outcome or latest.status
        say(
            f"{row.id}  {row.name or row.assertion.condition.kind}  {outcome}"
            f"  drift {row.drift.status}  {row.freshness.status}"
        )


@evals.command("get")
@_eval_argument
@_pass_client
def get_eval(client: Client, eval_id: str) -> None:
    """Print one eval as JSON."""
    _show(client.evals.get(eval_id))


@evals.command("update")
@_eval_argument
@_file_argument
@_pass_client
def update_eval(client: Client, eval_id: str, file: Path) -> None:
    """Change the fields of an eval that FILE names."""
    from evalcore.service.models import UpdateEval

    _show(client.evals.update(eval_id, **_body(UpdateEval, file)))


@evals.command("delete")
@_eval_argument
@_pass_client
def delete_eval(client: Client, eval_id: str) -> None:
    """Delete an eval; its results stay."""
    client.evals.delete(eval_id)
    click.echo(f"deleted {eval_id}")


@evals.command("run")
@_workflow_argument
@click.option("--block", help="The evals of this block only.")
@click.option("--eval", "eval_id", help="This eval only.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code says how it was.")
@click.option("--idempotency-key", help="The same key gives the same run.")
@json_option
@_pass_client
def run_evals(
    client: Client,
    workflow_id: str,
    block: str | None,
    eval_id: str | None,
    wait: bool,
    idempotency_key: str | None,
    as_json: bool,
) -> int:
    """Run the evals of a workflow.

    With --wait the exit code is 1 if one failed, was blocked, in error or cancelled.
    """
    if block is not None and eval_id is not None:
        raise UsageError("--block and --eval exclude each other")
    scope: dict[str, str] | None = None
    if block is not None:
        scope = {"type": "block", "block_id": block}
    elif eval_id is not None:
        scope = {"type": "single", "eval_id": eval_id}
    started = client.runs.create(idempotency_key, workflow_id=workflow_id, scope=scope)
    if wait:
        started = client.runs.wait(started.id)
    outcome = started.counts.outcome
    if as_json:
        _show(started)
    else:
        click.echo(
            f"{started.id}  {started.lifecycle.status}: {counted(started.total_evals, 'eval')}, "
            f"{outcome.passed} passed, {outcome.failed} failed, {outcome.blocked} blocked"
        )
    passed = outcome.passed == started.total_evals
    return ExitCode.PASS if passed or not wait else ExitCode.GATE_FAILED


@evals.command("results")
@click.argument("run_id", metavar="RUN")
@json_option
@_pass_client
def list_results(client: Client, run_id: str, as_json: bool) -> None:
    """List the results of a run."""
    for row in client.results.list(run_id=run_id):
        if as_json:
            click.echo(row.model_dump_json(by_alias=True))
            continue
        failure = None if row.assertion_result is None else row.assertion_result.failure
        reason = "" if failure is None else f"  {failure.message}"
        say(f"{row.id}  {row.eval_id}  {row.verdict or row.lifecycle.status}{reason}")


def _body(shape: type[BaseModel], file: Path) -> dict[str, Any]:
    """Return the fields of a request from a file; raises `LoadError` with every mistake."""
    from pydantic import ValidationError

    from evalcore.formats.documents import as_json, read_document
    from evalcore.problems import Problems

    document = read_document(file, str(file))
    fields: Any = as_json(document.value)
    try:
        shape.model_validate(fields)
    except ValidationError as error:
        problems = Problems(document.file, document.locate)
        problems.add_invalid(error, document.value, shape)
        problems.raise_if_any()
    return dict(fields)


def _show(resource: BaseModel) -> None:
    click.echo(resource.model_dump_json(by_alias=True, indent=2))


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


@click.command()
@click.argument("store", required=False, metavar="[STORE]")
@click.option("--port", default=8322, type=click.IntRange(0, 65535), help="The port.  [8322]")
@click.option("--open", "open_browser", is_flag=True, help="Open the browser.")
def view(store: str | None, port: int, open_browser: bool) -> None:
    """Show the runs of STORE in the browser, on this machine only, until stopped.

    STORE is a folder or s3://bucket/prefix; by default EVALCORE_STORE, else .evalcore.
    """
    from evalcore.viewer.app import serve_viewer
    from evalcore.viewer.site import require_folder

    def announce(address: str) -> None:
        click.echo(f"evalcore view: {address} (Ctrl-C stops it)", err=True)
        if open_browser:
            click.launch(address)

    chosen = chosen_store(store)
    if store is not None:
        try:
            require_folder(chosen.url)
        except StoreError as error:
            raise UsageError(str(error)) from None
    with ended_by_interrupt():
        serve_viewer(chosen, port, announce)
