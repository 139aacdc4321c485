"""`evalcore runs`: the runs in a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import RunConflictError
from evalcore.model.run import Manifest, State
from evalcore.pipeline import cancel_run
from evalcore.report.document import on_one_line
from evalcore.storage.runs import find_run, list_runs


@click.group()
def runs() -> None:
    """List runs and look at one."""


@runs.command("list")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@store_option
@json_option
def list_command(suite: str | None, store: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    found = list(list_runs(chosen_store(store), suite))
    if as_json:
        click.echo(on_one_line(orjson.dumps([_summary(manifest) for manifest in found]).decode()))
        return
    for manifest in found:
        decision = manifest.decision or manifest.state
        line = f"{manifest.id}  {decision:<12}  {manifest.plan.items:>8} items  {manifest.suite}"
        click.echo(one_line(line))
    if not found:
        click.echo("no runs yet", err=True)


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def show_command(run_id: str, store: str | None, as_json: bool) -> None:
    """Show one run's manifest: its plan, settings, state and counts."""
    manifest = find_run(chosen_store(store), run_id).manifest()
    if as_json:
        click.echo(on_one_line(orjson.dumps(manifest).decode()))
        return
    for name, value in _summary(manifest).items():
        click.echo(one_line(f"{name:<12} {value if value is not None else '–'}"))


@runs.command("cancel")
@click.argument("run_id", metavar="RUN")
@store_option
def cancel_command(run_id: str, store: str | None) -> None:
    """Stop a run's workers wherever they are; what is committed stays."""
    run = find_run(chosen_store(store), run_id)
    state = run.manifest().state
    if state is not State.RUNNING:
        raise RunConflictError(f"run {run_id} is {state}: there is nothing to cancel")
    run.request_cancel()
    cancel_run(run, (), now=datetime.now(UTC))
    click.echo(f"cancelled; go on with: evalcore run --resume {run_id}", err=True)


def _summary(manifest: Manifest) -> dict[str, Any]:
    plan = manifest.plan
    return {
        "id": manifest.id,
        "suite": manifest.suite,
        "state": manifest.state,
        "decision": manifest.decision,
        "format": manifest.format,
        "mode": manifest.mode,
        "created_at": manifest.created_at,
        "ended_at": manifest.ended_at,
        "source": manifest.source.get("path"),
        "items": plan.items,
        "cases": plan.cases,
        "variants": plan.variants,
        "iterations": plan.iterations,
        "shards": plan.shards,
        "counts": manifest.counts,
    }
