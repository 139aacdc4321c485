"""`evalcore baseline`: earlier runs that later ones of their suite are compared with."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import click
import orjson

from evalcore.analytics.integrity import check_run
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.cli.suite_names import suite_name
from evalcore.errors import UsageError
from evalcore.gates.gate import unmeasured_items
from evalcore.model.run import Manifest, State
from evalcore.model.summary import Counts
from evalcore.report.document import on_one_line
from evalcore.storage.baselines import (
    DEFAULT_NAME,
    BaselinePointer,
    clear_baseline,
    get_baseline,
    list_baselines,
    set_baseline,
)
from evalcore.storage.layout import iso_time, suite_key
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import find_run, list_runs, partial_reasons
from evalcore.storage.store import ObjectStore

LATEST = "latest"

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Which of the suite's."
)


@click.group()
def baseline() -> None:
    """Name runs that others are compared with (gate no_regressions, run --baseline)."""


@baseline.command("set")
@click.argument("suite")
@click.argument("run_id", metavar="RUN")
@name_option
@click.option("--force", is_flag=True, help="Take a run that is not measured whole.")
@store_option
@json_option
def set_command(
    suite: str, run_id: str, name: str, force: bool, store: str | None, as_json: bool
) -> None:
    """Make RUN (an id, or latest) a baseline of SUITE (its name or its file).

    A run of a part of the suite (--case, --tag, --variant, items in error or skipped by a limit),
    or of which nothing is measured, is refused without --force.
    """
    opened, suite = chosen_store(store), suite_name(suite, store)
    manifest = _completed(opened, suite, run_id)
    run = find_run(opened, manifest.id)
    check_run(run)
    if not force:
        _require_whole(manifest)
    moment = iso_time(datetime.now(UTC))
    pointer = BaselinePointer(manifest.suite, name, manifest.id, moment)
    before = set_baseline(opened, pointer)
    if as_json:
        _print_json(asdict(pointer) | {"replaced": None if before is None else before.run})
        return
    was = "" if before is None else f" (was {before.run})"
    click.echo(one_line(f"baseline '{name}' of suite '{manifest.suite}' is {manifest.id}{was}"))


@baseline.command("show")
@click.argument("suite")
@name_option
@store_option
@json_option
def show_command(suite: str, name: str, store: str | None, as_json: bool) -> None:
    """Show which run is a baseline of SUITE."""
    opened, suite = chosen_store(store), suite_name(suite, store)
    pointer = get_baseline(opened, suite, name)
    if pointer is None:
        raise UsageError(_none(opened, suite, name))
    if as_json:
        _print_json(asdict(pointer))
    else:
        click.echo(one_line(_line(pointer)))


@baseline.command("list")
@click.option("--suite", metavar="NAME", help="Only baselines of this suite.")
@store_option
@json_option
def list_command(suite: str | None, store: str | None, as_json: bool) -> None:
    """List the baselines of all suites."""
    chosen_suite = None if suite is None else suite_name(suite, store)
    pointers = list(list_baselines(chosen_store(store), chosen_suite))
    if as_json:
        _print_json([asdict(pointer) for pointer in pointers])
        return
    for pointer in pointers:
        click.echo(one_line(_line(pointer)))
    if not pointers:
        click.echo("no baselines yet; `evalcore baseline set SUITE RUN` makes one", err=True)


@baseline.command("clear")
@click.argument("suite")
@name_option
@store_option
@json_option
def clear_command(suite: str, name: str, store: str | None, as_json: bool) -> None:
    """Forget a baseline of SUITE; the run itself stays."""
    opened, suite = chosen_store(store), suite_name(suite, store)
    if not clear_baseline(opened, suite, name):
        raise UsageError(_none(opened, suite, name))
    if as_json:
        _print_json({"suite": suite, "name": name, "cleared": True})
    else:
        click.echo(one_line(f"baseline '{name}' of suite '{suite}' is cleared"))


def _completed(store: ObjectStore, suite: str, run_id: str) -> Manifest:
    """Return the manifest of a completed run of the suite; raise `UsageError` for another run."""
    if run_id == LATEST:
        runs = list_runs(store, suite)
        latest = next((manifest for manifest in runs if manifest.state is State.COMPLETED), None)
        if latest is None:
            raise UsageError(f"suite '{suite}' has no completed run in {store.url}")
        return latest
    manifest = choose_run(store, run_id, suite=suite).manifest()
    if suite_key(manifest.suite) != suite_key(suite):
        raise UsageError(f"run {run_id} is of suite '{manifest.suite}', not of '{suite}'")
    if manifest.state is not State.COMPLETED:
        raise UsageError(
            f"run {run_id} is {manifest.state}; only a completed run can be a baseline"
        )
    return manifest


def _require_whole(manifest: Manifest) -> None:
    """Raise `UsageError` for a partial run, and for one of which nothing is measured."""
    counts = Counts(**(manifest.counts or {}))
    reasons = partial_reasons(manifest)
    if not counts.measured:
        reasons = (unmeasured_items(counts),)
    if reasons:
        raise UsageError(
            f"run {manifest.id} is not measured whole: {'; '.join(reasons)}. A run of a part of "
            "its suite cannot be a baseline; run the whole suite, or take the run as it is with "
            "--force"
        )


def _none(store: ObjectStore, suite: str, name: str) -> str:
    names = ", ".join(pointer.name for pointer in list_baselines(store, suite))
    has = (
        f"it has: {names}" if names else "it has none; `evalcore baseline set SUITE RUN` makes one"
    )
    return f"suite '{suite}' has no baseline '{name}' in {store.url}; {has}"


def _line(pointer: BaselinePointer) -> str:
    return f"{pointer.suite}  {pointer.name}  {pointer.run}  set {pointer.set_at}"


def _print_json(value: object) -> None:
    click.echo(on_one_line(orjson.dumps(value).decode()))
