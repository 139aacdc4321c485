"""`evalcore runs`: the runs in a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.cli.verify import verify_command
from evalcore.errors import DamagedRunError, ExitCode, RunConflictError
from evalcore.gates.decide import exit_code
from evalcore.model.gate import Decision
from evalcore.model.run import Manifest, State
from evalcore.pipeline import cancel_run
from evalcore.pipeline.integrity import verify_run
from evalcore.report.document import on_one_line
from evalcore.storage.runs import UnreadableRun, find_run, list_all_runs

if TYPE_CHECKING:
    from evalcore.pipeline.watch import Watched


_DAMAGED = "damaged"
_UNPLANNED = "unplanned"


@click.group()
def runs() -> None:
    """List runs and look at one."""


@runs.command("list")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@store_option
@json_option
def list_command(suite: str | None, store: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    listed = list(list_all_runs(chosen_store(store), suite))
    if as_json:
        click.echo(on_one_line(orjson.dumps([_entry(run) for run in listed]).decode()))
        return
    for run in listed:
        if isinstance(run, UnreadableRun):
            line = f"{run.id}  {_DAMAGED:<12}  {run.reason}  {run.suite}"
        else:
            decision = run.decision or (run.state if run.is_planned else _UNPLANNED)
            line = f"{run.id}  {decision:<12}  {run.plan.items:>8} items  {run.suite}"
        click.echo(one_line(line))
    if not listed:
        click.echo("no runs yet", err=True)


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def show_command(run_id: str, store: str | None, as_json: bool) -> int:
    """Show one run's manifest: its plan, settings, state and counts.

    The exit code is 4 if its plan or its results are damaged.
    """
    run = find_run(chosen_store(store), run_id)
    manifest, damages = run.manifest(), verify_run(run, thorough=False)
    code = ExitCode.ERRORS if damages else ExitCode.PASS
    if as_json:
        extra = {"damaged": [damage._asdict() for damage in damages]} if damages else {}
        document = orjson.loads(orjson.dumps(manifest)) | extra
        click.echo(on_one_line(orjson.dumps(document).decode()))
        return int(code)
    for name, value in _summary(manifest).items():
        click.echo(one_line(f"{name:<12} {value if value is not None else '–'}"))
    for damage in damages:
        click.echo(one_line(f"{_DAMAGED:<12} {damage}"))
    if damages:
        click.echo(DamagedRunError(run_id, damages).remedy, err=True)
    return int(code)


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


@runs.command("watch")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the store is looked at.",
)
@store_option
@json_option
def watch_command(run_id: str, interval_s: float, store: str | None, as_json: bool) -> int:
    """Follow a run until it is decided; the exit code is that of the run.

    The run may be executed by any process, also on another machine. Ctrl-C ends the watching only.
    """
    import time

    from evalcore.pipeline.watch import Watch

    watch = Watch(find_run(chosen_store(store), run_id), clock=time.time)
    last_key = ""
    try:
        for watched in watch.follow(lambda: time.sleep(interval_s)):
            document = watched.document()
            facts = {key: value for key, value in document.items() if key not in _MOVING}
            if (key := repr(facts)) == last_key:
                continue
            last_key = key
            line = orjson.dumps(document).decode()
            click.echo(on_one_line(line) if as_json else one_line(_progress(watched)))
    except KeyboardInterrupt:
        click.echo("watching ended; the run goes on without it", err=True)
        return int(ExitCode.ERRORS)
    if watched.decision is None:
        if not as_json:
            click.echo(f"stopped; go on with: evalcore run --resume {one_line(run_id)}", err=True)
        return int(ExitCode.ERRORS)
    return int(exit_code([Decision(watched.decision)]))


runs.add_command(verify_command)

# What changes although nothing has happened.
_MOVING = ("items_per_s", "left_s", "elapsed_s")


def _progress(watched: Watched) -> str:
    """Return one line for people."""
    shards, tally = watched.shards, watched.tally
    parts = [
        f"{watched.suite}: {tally.done}/{watched.items} items",
        f"{tally.passed} passed",
        f"{tally.failed} failed",
        f"{tally.errors} errors",
    ]
    parts += [f"{tally.blocked} blocked"] if tally.blocked else []
    parts += [f"{tally.skipped} skipped"] if tally.skipped else []
    parts.append(f"shards {shards.done}/{shards.total} done, {shards.claimed} begun")
    if watched.rate is not None:
        parts.append(f"{watched.rate:.1f} items/s")
    if watched.ended:
        parts.append(f"{watched.decision or watched.state} after {watched.elapsed_s:.1f} s")
    elif watched.left_s is not None:
        parts.append(f"about {watched.left_s:.0f} s left")
    return ", ".join(parts)


def _entry(run: Manifest | UnreadableRun) -> dict[str, Any]:
    if isinstance(run, Manifest):
        return _summary(run)
    return {"id": run.id, "suite": run.suite, "state": _DAMAGED, "decision": None} | {
        "reason": run.reason
    }


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
