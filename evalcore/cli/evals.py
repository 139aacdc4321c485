"""`evalcore evals`: saved evals of a service, from the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore.cli.options import json_option
from evalcore.errors import ExitCode, UsageError
from evalcore.wording import counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from evalcore.client.clients import Client

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


@evals.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def create(server: str, file: Path) -> None:
    """Save the eval of FILE (JSON or YAML, as the API takes it)."""
    from evalcore.client import calls
    from evalcore.service.models import CreateEval

    body = _body(CreateEval, file)
    with _client(server) as client:
        _show(client.send(calls.create_eval(body)))


@evals.command("list")
@click.argument("workflow_id", metavar="WORKFLOW")
@json_option
@click.pass_obj
def list_evals(server: str, workflow_id: str, as_json: bool) -> None:
    """List the evals of a workflow with their drift and their latest outcome."""
    from evalcore.client import calls

    with _client(server) as client:
        rows = client.every(lambda page: calls.list_evals({"workflow_id": workflow_id, **page}))
        for row in rows:
            if as_json:
                click.echo(row.model_dump_json(by_alias=True))
                continue
            latest = row.latest_run_summary
            outcome = "never run" if latest is None else latest.outcome or latest.status
            click.echo(
                f"{row.id}  {row.name or row.assertion.condition.kind}  {outcome}"
                f"  drift {row.drift.status}  {row.freshness.status}"
            )


@evals.command()
@click.argument("eval_id", metavar="EVAL")
@click.pass_obj
def get(server: str, eval_id: str) -> None:
    """Print one eval as JSON."""
    from evalcore.client import calls

    with _client(server) as client:
        _show(client.send(calls.get_eval(eval_id)))


@evals.command()
@click.argument("eval_id", metavar="EVAL")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def update(server: str, eval_id: str, file: Path) -> None:
    """Change the fields of an eval that FILE names."""
    from evalcore.client import calls
    from evalcore.service.models import UpdateEval

    body = _body(UpdateEval, file)
    with _client(server) as client:
        _show(client.send(calls.update_eval(eval_id, body)))


@evals.command()
@click.argument("eval_id", metavar="EVAL")
@click.pass_obj
def delete(server: str, eval_id: str) -> None:
    """Delete an eval; its results stay."""
    from evalcore.client import calls

    with _client(server) as client:
        client.send(calls.delete_eval(eval_id))
    click.echo(f"deleted {eval_id}")


@evals.command()
@click.argument("workflow_id", metavar="WORKFLOW")
@click.option("--block", help="The evals of this block only.")
@click.option("--eval", "eval_id", help="This eval only.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code says how it was.")
@click.option("--idempotency-key", help="The same key gives the same run.")
@json_option
@click.pass_obj
def run(
    server: str,
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
    from evalcore.client import calls
    from evalcore.service.models import BlockScope, CreateEvalRun, SingleScope

    if block is not None and eval_id is not None:
        raise UsageError("--block and --eval exclude each other")
    scope: Any = None
    if block is not None:
        scope = BlockScope(type="block", block_id=block)
    elif eval_id is not None:
        scope = SingleScope(type="single", eval_id=eval_id)
    body = CreateEvalRun(workflow_id=workflow_id, scope=scope)
    with _client(server) as client:
        started = client.send(calls.create_run(body, idempotency_key))
        if wait:
            started = client.wait(calls.get_run(started.id))
    if as_json:
        _show(started)
    else:
        outcome = started.counts.outcome
        click.echo(
            f"{started.id}  {started.lifecycle.status}: {counted(started.total_evals, 'eval')}, "
            f"{outcome.passed} passed, {outcome.failed} failed, {outcome.blocked} blocked"
        )
    passed = started.counts.outcome.passed == started.total_evals
    return ExitCode.PASS if passed or not wait else ExitCode.GATE_FAILED


@evals.command()
@click.argument("run_id", metavar="RUN")
@json_option
@click.pass_obj
def results(server: str, run_id: str, as_json: bool) -> None:
    """List the results of a run."""
    from evalcore.client import calls

    with _client(server) as client:
        for row in client.every(lambda page: calls.list_results({"run_id": run_id, **page})):
            if as_json:
                click.echo(row.model_dump_json(by_alias=True))
                continue
            failure = None if row.assertion_result is None else row.assertion_result.failure
            reason = "" if failure is None else f"  {failure.message}"
            click.echo(f"{row.id}  {row.eval_id}  {row.verdict or row.lifecycle.status}{reason}")


@evals.command()
@click.argument("workflow_id", metavar="WORKFLOW")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE: JSON if it ends in .json, else YAML.",
)
@click.pass_obj
def export(server: str, workflow_id: str, output: Path | None) -> None:
    """Write a workflow and its saved evals as a file that `evalcore run` executes."""
    from evalcore.client import calls
    from evalcore.formats.saved_evals import file_of, saved_evals_text

    with _client(server) as client:
        exported = client.send(calls.export_workflow(workflow_id))
    content = file_of(exported.name, exported.workflow, exported.evals)
    is_json = output is not None and output.suffix == ".json"
    text = saved_evals_text(content, as_json=is_json)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, "utf-8")
    click.echo(f"{output}: {counted(len(exported.evals), 'eval')}")


@evals.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workflow", "workflow_id", metavar="ID", help="Import into this workflow.")
@click.option("--dry-run", is_flag=True, help="Only print what would change.")
@json_option
@click.pass_obj
def import_file(
    server: str, file: Path, workflow_id: str | None, dry_run: bool, as_json: bool
) -> None:
    """Create or update the workflow and the evals of FILE; a second time changes nothing."""
    import orjson

    from evalcore.client.imports import Import
    from evalcore.formats.saved_evals import read_saved_evals

    written = read_saved_evals(file)
    with _client(server) as client:
        for change in Import(client, written, dry_run).run(workflow_id):
            if as_json:
                click.echo(orjson.dumps(change._asdict()).decode())
                continue
            fields = f" ({', '.join(change.fields)})" if change.fields else ""
            identity = f"  {change.id}" if change.id else ""
            click.echo(f"{change.resource} {change.name}: {change.action}{fields}{identity}")


def _client(server: str) -> Client:
    from evalcore.client.clients import Client

    return Client(server, os.environ.get("EVALCORE_TOKEN") or None)


def _body(shape: type[Any], file: Path) -> Any:
    """Return a request from a file; raises `LoadError` with every mistake."""
    from pydantic import ValidationError

    from evalcore.formats.documents import as_json, read_document
    from evalcore.problems import Problems

    document = read_document(file, str(file))
    problems = Problems(document.file, document.locate)
    try:
        return shape.model_validate(as_json(document.value))
    except ValidationError as error:
        problems.add_invalid(error, document.value, shape)
    problems.raise_if_any()
    raise AssertionError("a validation error has mistakes")


def _show(resource: BaseModel) -> None:
    click.echo(resource.model_dump_json(by_alias=True, indent=2))
