"""`evalcore runs`: the runs in a store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import orjson

from evalcore.analytics.integrity import verify_run
from evalcore.cli.fresh_history import refresh
from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.run_listing import DAMAGED, INTERRUPTED, list_command, manifest_facts
from evalcore.cli.showing import one_line
from evalcore.cli.verify import verify_command
from evalcore.errors import DamagedRunError, ExitCode, RunConflictError
from evalcore.gates.decide import exit_code
from evalcore.model.run import Decision, State
from evalcore.pipeline.lease import is_interrupted
from evalcore.pipeline.states import cancel_run
from evalcore.report.document import on_one_line
from evalcore.storage.manifests import encode_manifest
from evalcore.storage.run_names import choose_run
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.pipeline.removal import Progress
    from evalcore.pipeline.watch import Watched


@click.group()
def runs() -> None:
    """List runs and look at one."""


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def show_command(run_id: str, store: str | None, as_json: bool) -> int:
    """Show one run's manifest: its plan, settings, state and counts.

    The exit code is 4 if its plan or its results are damaged.
    """
    run = choose_run(chosen_store(store), run_id)
    manifest, damages = run.manifest(), verify_run(run, deep=False)
    code = ExitCode.ERRORS if damages else ExitCode.PASS
    if as_json:
        extra = {"damaged": [damage._asdict() for damage in damages]} if damages else {}
        document = orjson.loads(encode_manifest(manifest)) | extra
        click.echo(on_one_line(orjson.dumps(document).decode()))
        return int(code)
    facts = manifest_facts(manifest)
    if is_interrupted(run, manifest, now=datetime.now(UTC)):
        facts["state"] = INTERRUPTED
    facts["counts"] = _counts_text(manifest.counts)
    for name, value in facts.items():
        click.echo(one_line(f"{name:<12} {value if value is not None else '–'}"))
    for damage in damages:
        click.echo(one_line(f"{DAMAGED:<12} {damage}"))
    if damages:
        click.echo(DamagedRunError(run.run_id, damages).remedy, err=True)
    return int(code)


def _counts_text(counts: Mapping[str, int] | None) -> str | None:
    """Return what items became, without those of which there is none."""
    if counts is None:
        return None
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


@runs.command("cancel")
@click.argument("run_id", metavar="RUN")
@store_option
def cancel_command(run_id: str, store: str | None) -> None:
    """Stop a run's workers wherever they are; what is committed stays."""
    run = choose_run(chosen_store(store), run_id)
    state = run.manifest().state
    if state is not State.RUNNING:
        raise RunConflictError(f"run {run.run_id} is {state}: there is nothing to cancel")
    run.request_cancel()
    cancel_run(run, now=datetime.now(UTC))
    click.echo(f"cancelled; go on with: evalcore run --resume {run.run_id}", err=True)


@runs.command("watch")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--interval",
    "interval_s",
    type=NumberRange(min=0.05),
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

    run = choose_run(chosen_store(store), run_id)
    watch = Watch(run, clock=time.time)
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
    if (decision := watched.manifest.decision) is None:
        if not as_json:
            click.echo(f"stopped; go on with: evalcore run --resume {run.run_id}", err=True)
        return int(ExitCode.ERRORS)
    return int(exit_code([Decision(decision)]))


@runs.command("delete")
@click.argument("run_names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Delete them; without it they are only listed.")
@store_option
@json_option
def delete_command(run_names: tuple[str, ...], yes: bool, store: str | None, as_json: bool) -> int:
    """Delete runs with their plans, results and reports; their rows in the history stay.

    If a run has to stay (a baseline, a run that another one was compared with, a running one)
    nothing is deleted and the exit code is 2.
    """
    from evalcore.pipeline.removal import remove_runs, require_removable

    opened = chosen_store(store)
    runs = {run.run_id: run for run in (choose_run(opened, name) for name in run_names)}
    refresh(opened)
    require_removable(opened, [*runs.values()], now=datetime.now(UTC))
    if yes:
        remove_runs([*runs.values()], _deletion_progress(as_json=as_json))
    if as_json:
        click.echo(on_one_line(orjson.dumps({"deleted": yes, "runs": [*runs]}).decode()))
        return int(ExitCode.PASS)
    for run in runs.values():
        click.echo(one_line(f"{'gone  ' if yes else 'delete'}  {run.run_id}  {run.keys.suite}"))
    after = "deleted" if yes else "would be deleted; --yes deletes"
    click.echo(f"{counted(len(runs), 'run')} {after}", err=True)
    return int(ExitCode.PASS)


def _deletion_progress(*, as_json: bool) -> Progress:
    if as_json or not sys.stderr.isatty():
        return lambda _done, _total: None

    def show(done: int, total: int) -> None:
        click.echo(f"\r{done} of {total} runs deleted", err=True, nl=done == total)

    return show


for command in (list_command, verify_command):
    runs.add_command(command)

# What changes although nothing has happened.
_MOVING = ("items_per_s", "left_s", "elapsed_s")


def _progress(watched: Watched) -> str:
    """Return one line for people."""
    manifest, shards, tally = watched.manifest, watched.shards, watched.tally
    parts = [
        f"{manifest.suite}: {tally.done}/{manifest.plan.items} items",
        f"{tally.passed} passed",
        f"{tally.failed} failed",
        counted(tally.errors, "error"),
    ]
    parts += [f"{tally.blocked} blocked"] if tally.blocked else []
    parts += [f"{tally.skipped} skipped"] if tally.skipped else []
    parts.append(f"shards {shards['done']}/{shards['total']} done, {shards['claimed']} begun")
    if watched.rate is not None:
        parts.append(f"{watched.rate:.1f} items/s")
    if watched.ended:
        parts.append(f"{manifest.decision or manifest.state} after {watched.elapsed_s:.1f} s")
    elif watched.left_s is not None:
        parts.append(f"about {watched.left_s:.0f} s left")
    return ", ".join(parts)
