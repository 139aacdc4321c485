"""`evalcore runs`: the runs in a store."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.analytics.integrity import verify_run
from evalcore.cli.options import (
    NumberRange,
    RunName,
    chosen_store,
    import_option,
    json_option,
    run_argument,
    settings,
    store_option,
)
from evalcore.cli.output import emit, refresh, say, show_progress
from evalcore.cli.running import RunOptions, resume_run
from evalcore.errors import DamagedRunError, ExitCode, NotAllowedError, RunConflictError
from evalcore.gates.decide import exit_code
from evalcore.model.run import Decision, Manifest, State
from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan, read_seal
from evalcore.pipeline.lease import is_interrupted
from evalcore.pipeline.states import cancel_run
from evalcore.report.figures import duration_text
from evalcore.storage.manifests import encode_manifest
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import (
    PART,
    RunFigures,
    StoredRun,
    UnreadableRun,
    list_all_runs,
    open_run,
    read_figures,
)
from evalcore.trust.plan_keys import read_plan_keys
from evalcore.viewer.catalogue import duration_s
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.errors import Damage
    from evalcore.pipeline.watch import Watched
    from evalcore.storage.store import ObjectStore

_ROW: Final = "{:<23}  {:<12}  {:>9}  {:>7}  {:>9}  {:>9}  {:>10}  {}"
_TITLES: Final = ("RUN", "DECISION", "ITEMS", "SCORE", "PASS RATE", "DURATION", "COST USD", "SUITE")
_MOVING: Final = ("items_per_s", "left_s", "elapsed_s")
"""What changes of a followed run although nothing has happened."""


@click.group()
def runs() -> None:
    """List, show, watch, verify, cancel and delete runs."""


@runs.command("list")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@store_option
@json_option
def list_command(suite: str | None, limit: int | None, store: str | None, as_json: bool) -> None:
    """List runs, newest first, with their score, pass rate, duration and cost.

    A run whose processes have died is shown as interrupted; `evalcore run --resume` continues it.
    """
    opened = chosen_store(store)
    entries = _entries(opened, islice(list_all_runs(opened, suite), limit))
    if as_json:
        emit(list(entries), as_json, ())
    else:
        emit(None, as_json, _lines(entries), none="no runs yet")


def manifest_facts(manifest: Manifest) -> dict[str, Any]:
    """Return what a listing shows of a run from its manifest alone."""
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
        "part": manifest.execution.get(PART),
    }


def _entries(
    store: ObjectStore, listed: Iterable[Manifest | UnreadableRun]
) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC)
    for run in listed:
        if isinstance(run, UnreadableRun):
            entry = {"id": run.id, "suite": run.suite, "state": "damaged", "decision": None}
            yield entry | {"reason": run.reason}
            continue
        figures = read_figures(run) if run.state is State.COMPLETED else RunFigures()
        yield manifest_facts(run) | {
            "planned": run.is_planned,
            "interrupted": is_interrupted(open_run(store, run.suite, run.id), run, now=now),
            "duration_s": duration_s(run),
            **figures._asdict(),
        }


def _lines(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, entry in enumerate(entries):
        if not number:
            yield _ROW.format(*_TITLES)
        yield _line(entry)


def _line(entry: dict[str, Any]) -> str:
    if entry["state"] == "damaged":
        return f"{entry['id']}  {'damaged':<12}  {entry['reason']}  {entry['suite']}"
    outcome = entry["decision"] or (entry["state"] if entry["planned"] else "unplanned")
    part = f"  partial: {'; '.join(entry['part'])}" if entry["part"] else ""

    def shown(key: str, form: str) -> str:
        return "–" if entry[key] is None else format(entry[key], form)

    took_s = entry["duration_s"]
    return _ROW.format(
        entry["id"],
        "interrupted" if entry["interrupted"] else outcome,
        entry["items"],
        shown("score", ".4f"),
        shown("pass_rate", ".1%"),
        "–" if took_s is None else duration_text(took_s),
        shown("cost_usd", ",.4f"),
        f"{entry['suite']}{part}",
    )


@runs.command("show")
@run_argument
@store_option
@json_option
def show_command(run_id: str, store: str | None, as_json: bool) -> int:
    """Show one run's manifest: its plan, settings, state and counts.

    The exit code is 4 if its plan or its results are damaged.
    """
    run = choose_run(chosen_store(store), run_id)
    manifest, damages = run.manifest(), verify_run(run, deep=False)
    extra = {"damaged": [damage._asdict() for damage in damages]} if damages else {}
    facts = manifest_facts(manifest)
    if is_interrupted(run, manifest, now=datetime.now(UTC)):
        facts["state"] = "interrupted"
    facts["counts"] = _counts_text(manifest.counts)
    lines = [f"{name:<12} {'–' if value is None else value}" for name, value in facts.items()]
    lines += [f"{'damaged':<12} {damage}" for damage in damages]
    emit(orjson.loads(encode_manifest(manifest)) | extra, as_json, lines)
    if damages and not as_json:
        click.echo(DamagedRunError(run.run_id, damages).remedy, err=True)
    return int(ExitCode.ERRORS if damages else ExitCode.PASS)


def _counts_text(counts: Mapping[str, int] | None) -> str | None:
    """Return what items became, without those of which there is none."""
    if counts is None:
        return None
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


@runs.command("cancel")
@run_argument
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
@run_argument
@click.option(
    "--interval",
    "interval_s",
    type=NumberRange(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the store is read.",
)
@store_option
@json_option
def watch_command(run_id: str, interval_s: float, store: str | None, as_json: bool) -> int:
    """Follow a run until it is decided; the exit code is that of the run.

    The run may be executed by any process, also on another machine. Ctrl-C ends the watching only.
    """
    from evalcore.pipeline.watch import Watch

    run = choose_run(chosen_store(store), run_id)
    last: dict[str, Any] = {}
    try:
        for watched in Watch(run, clock=time.time).follow(lambda: time.sleep(interval_s)):
            document = watched.document()
            facts = {key: value for key, value in document.items() if key not in _MOVING}
            if facts != last:
                last = facts
                emit(document, as_json, (_progress(watched),))
    except KeyboardInterrupt:
        click.echo("watching ended; the run goes on without it", err=True)
        return int(ExitCode.ERRORS)
    if (decision := watched.manifest.decision) is not None:
        return int(exit_code([Decision(decision)]))
    if not as_json:
        click.echo(f"stopped; go on with: evalcore run --resume {run.run_id}", err=True)
    return int(ExitCode.ERRORS)


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


@runs.command("delete")
@click.argument("run_names", metavar="RUN...", nargs=-1, required=True, type=RunName())
@click.option("--yes", is_flag=True, help="Delete them; without it they are only listed.")
@store_option
@json_option
def delete_command(run_names: tuple[str, ...], yes: bool, store: str | None, as_json: bool) -> None:
    """Delete runs with their plans, results and reports; their rows in the history stay.

    If a run has to stay (a baseline, a run that another one was compared with, a running one)
    nothing is deleted and the exit code is 2.
    """
    from evalcore.pipeline.removal import remove_runs, require_removable

    opened = chosen_store(store)
    chosen = {run.run_id: run for run in (choose_run(opened, name) for name in run_names)}
    refresh(opened)
    require_removable(opened, [*chosen.values()], now=datetime.now(UTC))
    if yes:
        remove_runs([*chosen.values()], show_progress("runs deleted", as_json=as_json))
    verb = "gone  " if yes else "delete"
    lines = [f"{verb}  {run.run_id}  {run.keys.suite}" for run in chosen.values()]
    emit({"deleted": yes, "runs": [*chosen]}, as_json, lines)
    if not as_json:
        after = "deleted" if yes else "would be deleted; --yes deletes"
        click.echo(f"{counted(len(chosen), 'run')} {after}", err=True)


@runs.command("verify")
@run_argument
@click.option(
    "--repair",
    is_flag=True,
    help="Set damaged result parts aside and execute their shards again.",
)
@import_option
@store_option
@json_option
def verify_command(
    run_id: str, repair: bool, imports: tuple[str, ...], store: str | None, as_json: bool
) -> int:
    """Check that a run's manifest, plan and results are whole; list every damage.

    Exit codes: 0 the run is whole (or is now), 4 it is damaged.
    """
    run = choose_run(chosen_store(store), run_id)
    damages, repaired = _damages(run), tuple[int, ...]()
    if damages and repair and DamagedRunError(run.run_id, damages).repairable:
        repaired, damages = _repaired(run, damages, imports)
    manifest: Manifest | None = None
    with suppress(DamagedRunError):
        manifest = run.manifest()
    document = {
        "run": run.run_id,
        "state": None if manifest is None else manifest.state,
        "decision": None if manifest is None else manifest.decision,
        "whole": not damages,
        "damaged": [damage._asdict() for damage in damages],
        "repaired": list(repaired),
    }
    lines = [f"damaged: {damage}" for damage in damages]
    lines += [f"executed again: shards {', '.join(map(str, repaired))}"] if repaired else []
    lines += [] if damages else [f"run {run.run_id} is whole"]
    emit(document, as_json, lines)
    if damages and not as_json:
        click.echo(DamagedRunError(run.run_id, damages).remedy, err=True)
    return int(ExitCode.ERRORS if damages else ExitCode.PASS)


def _repaired(
    run: StoredRun, damages: tuple[Damage, ...], imports: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[Damage, ...]]:
    """Execute the damaged shards again; return them, and what is damaged still."""
    from evalcore.pipeline.states import reopen_damaged

    for damage in damages:
        say(f"damaged: {damage}", err=True)
    # Nothing is set aside of a run whose plan this process does not execute.
    accept_plan(run, AcceptingWorker(Path.cwd(), settings(), imports))
    shards = reopen_damaged(run, damages)
    with redirect_stdout(sys.stderr):  # standard output says what became of the run
        resume_run(run.store, run.run_id, RunOptions(False, False, imports=imports))
    return shards, _damages(run)


def _damages(run: StoredRun) -> tuple[Damage, ...]:
    """Return every damage of a run, a plan that is not what this process has signed included."""
    try:
        seal = read_seal(run, read_plan_keys(os.environ), run.manifest())
    except NotAllowedError:  # not signed is not damaged
        seal = None
    except DamagedRunError as error:
        return verify_run(run) or error.damages
    return verify_run(replace(run, seal=seal))
