"""`evalcore runs verify`: whether a run is whole; `--repair` executes what is not."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from evalcore.analytics.integrity import verify_run
from evalcore.cli.options import chosen_store, import_option, json_option, settings, store_option
from evalcore.cli.run_options import RunOptions
from evalcore.cli.running import resume_run
from evalcore.cli.showing import one_line
from evalcore.errors import DamagedRunError, ExitCode, NotAllowedError
from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan, read_seal
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.trust.plan_keys import read_plan_keys

if TYPE_CHECKING:
    from evalcore.errors import Damage
    from evalcore.model.run import Manifest

_REPAIR_HELP = "Set damaged result parts aside and execute their shards again."


@click.command("verify")
@click.argument("run_id", metavar="RUN")
@click.option("--repair", is_flag=True, help=_REPAIR_HELP)
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
    if as_json:
        click.echo(on_one_line(orjson.dumps(_document(run, damages, repaired)).decode()))
    else:
        _tell(run, damages, repaired)
    return int(ExitCode.ERRORS if damages else ExitCode.PASS)


def _repaired(
    run: StoredRun, damages: tuple[Damage, ...], imports: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[Damage, ...]]:
    """Execute the damaged shards again; return them, and what is damaged still."""
    from evalcore.pipeline.states import reopen_damaged

    for damage in damages:
        click.echo(one_line(f"damaged: {damage}"), err=True)
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


def _document(
    run: StoredRun, damages: tuple[Damage, ...], repaired: tuple[int, ...]
) -> dict[str, Any]:
    manifest: Manifest | None = None
    with suppress(DamagedRunError):
        manifest = run.manifest()
    return {
        "run": run.run_id,
        "state": None if manifest is None else manifest.state,
        "decision": None if manifest is None else manifest.decision,
        "whole": not damages,
        "damaged": [damage._asdict() for damage in damages],
        "repaired": list(repaired),
    }


def _tell(run: StoredRun, damages: tuple[Damage, ...], repaired: tuple[int, ...]) -> None:
    for damage in damages:
        click.echo(one_line(f"damaged: {damage}"))
    if repaired:
        shards = ", ".join(map(str, repaired))
        click.echo(f"executed again: shards {shards}")
    if damages:
        click.echo(DamagedRunError(run.run_id, damages).remedy, err=True)
    else:
        click.echo(f"run {run.run_id} is whole")
