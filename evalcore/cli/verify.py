"""`evalcore runs verify`: whether a run is whole."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import orjson

from evalcore.analytics.integrity import verify_run
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import DamagedRunError, ExitCode, NotAllowedError
from evalcore.pipeline.acceptance import read_seal
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.trust.plan_keys import read_plan_keys

if TYPE_CHECKING:
    from evalcore.errors import Damage
    from evalcore.model.run import Manifest


@click.command("verify")
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def verify_command(run_id: str, store: str | None, as_json: bool) -> int:
    """Check that a run's manifest, plan and results are whole; list every damage.

    Exit codes: 0 the run is whole, 4 it is damaged.
    """
    run = choose_run(chosen_store(store), run_id)
    damages = _damages(run)
    if as_json:
        click.echo(on_one_line(orjson.dumps(_document(run, damages)).decode()))
    else:
        _tell(run, damages)
    return int(ExitCode.ERRORS if damages else ExitCode.PASS)


def _damages(run: StoredRun) -> tuple[Damage, ...]:
    """Return every damage of a run, a plan that is not what this process has signed included."""
    try:
        seal = read_seal(run, read_plan_keys(os.environ), run.manifest())
    except NotAllowedError:  # not signed is not damaged
        seal = None
    except DamagedRunError as error:
        return verify_run(run) or error.damages
    return verify_run(replace(run, seal=seal))


def _document(run: StoredRun, damages: tuple[Damage, ...]) -> dict[str, Any]:
    manifest: Manifest | None = None
    with suppress(DamagedRunError):
        manifest = run.manifest()
    return {
        "run": run.run_id,
        "state": None if manifest is None else manifest.state,
        "decision": None if manifest is None else manifest.decision,
        "whole": not damages,
        "damaged": [damage._asdict() for damage in damages],
    }


def _tell(run: StoredRun, damages: tuple[Damage, ...]) -> None:
    for damage in damages:
        click.echo(one_line(f"damaged: {damage}"))
    if damages:
        click.echo(DamagedRunError(run.run_id, damages).remedy, err=True)
    else:
        click.echo(f"run {run.run_id} is whole")
