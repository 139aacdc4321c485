"""`evalcore quarantine`: keep flaky cases from gating until a day, list them, let them return."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import UsageError
from evalcore.model.suite import QUARANTINE_FILE, READY_AFTER_RUNS, QuarantineEntry
from evalcore.report.document import on_one_line

if TYPE_CHECKING:
    from evalcore.storage.store import ObjectStore

suite_option = click.option(
    "--suite",
    metavar="FILE",
    help=f"The suite beside which {QUARANTINE_FILE} stands; the current folder by default.",
)


@click.group()
def quarantine() -> None:
    """Keep flaky cases from gating until a day; they run and are reported as before."""


@quarantine.command("add")
@click.argument("case")
@click.option("--until", required=True, metavar="DAY", help="The last day of it: 2026-12-24.")
@click.option("--owner", required=True, metavar="WHO", help="Who looks after the case.")
@click.option("--reason", default="", metavar="TEXT", help="Why the case does not gate.")
@suite_option
@store_option
def add_command(
    case: str, until: str, owner: str, reason: str, suite: str | None, store: str | None
) -> None:
    """Quarantine CASE, or change its entry."""
    from evalcore.formats.quarantine import add_entry

    path, _ = _file(suite)
    entry = QuarantineEntry(case, _day(until), owner.strip(), reason.strip())
    if not case.strip() or not entry.owner:
        raise UsageError("a quarantined case has an id and an owner")
    _warn_of_unknown(suite, entry, store)
    replaced = add_entry(path, entry)
    verb = "is changed in" if replaced else "is in"
    click.echo(one_line(f"{case} {verb} {path}: it does not gate until {entry.until}"))


@quarantine.command("remove")
@click.argument("case")
@suite_option
def remove_command(case: str, suite: str | None) -> None:
    """Let CASE gate again."""
    from evalcore.formats.quarantine import read_quarantine, remove_entry
    from evalcore.wording import suggest

    path, exists = _file(suite)
    entries = read_quarantine(path) if exists else ()
    of_case = [entry for entry in entries if entry.case == case]
    if not of_case:
        hint = suggest(case, [entry.case for entry in entries], most=10)
        raise UsageError(f"{path} has no entry of case '{case}'.{hint}")
    for entry in of_case:
        remove_entry(path, case, entry.suite)
    click.echo(one_line(f"{case} gates again"))


@quarantine.command("list")
@suite_option
@store_option
@json_option
def list_command(suite: str | None, store: str | None, as_json: bool) -> None:
    """List the entries, which of them have expired, and which cases are ready to return."""
    from evalcore.formats.quarantine import read_quarantine

    path, exists = _file(suite)
    entries = read_quarantine(path) if exists else ()
    today = datetime.now(UTC).date()
    ready = _ready(chosen_store(store), entries) if entries else {}
    if as_json:
        rows = [
            asdict(entry)
            | {"expired": entry.has_expired(today), "ready_in": list(ready.get(entry, ()))}
            for entry in entries
        ]
        click.echo(on_one_line(orjson.dumps(rows).decode()))
        return
    if not entries:
        click.echo(one_line(f"{path}: no case is quarantined"))
    for entry in entries:
        click.echo(one_line(_line(entry, today, ready.get(entry, ()))))


def _line(entry: QuarantineEntry, today: date, ready_in: tuple[str, ...]) -> str:
    state = "expired, gates again" if entry.has_expired(today) else "does not gate"
    parts = [f"{entry.case}  until {entry.until} ({state})  {entry.owner}"]
    if entry.suite:
        parts.append(f"suite {entry.suite}")
    if entry.reason:
        parts.append(entry.reason)
    if ready_in:
        parts.append(
            f"ready to return: passed in the last {READY_AFTER_RUNS} runs of " + ", ".join(ready_in)
        )
    return "  ".join(parts)


def _ready(
    store: ObjectStore, entries: tuple[QuarantineEntry, ...]
) -> dict[QuarantineEntry, tuple[str, ...]]:
    from evalcore.cli.fresh_history import refresh
    from evalcore.history.trend import returning_cases

    refresh(store)
    return returning_cases(store, entries)


def _file(suite: str | None) -> tuple[Path, bool]:
    """Return the path of the quarantine file, and whether it exists."""
    folder = Path() if suite is None else Path(suite)
    if suite is not None and not folder.exists():
        raise UsageError(f"{suite} does not exist")
    path = (folder if folder.is_dir() else folder.parent) / QUARANTINE_FILE
    return path, path.is_file()


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until: expected a day such as 2026-12-24, got '{text}'") from None
    if day < datetime.now(UTC).date():
        raise UsageError(f"--until: {text} is over; the case would gate")
    return day.isoformat()


def _warn_of_unknown(suite: str | None, entry: QuarantineEntry, store: str | None) -> None:
    """Warn if the suite was named and does not have the case."""
    if suite is None or Path(suite).is_dir():
        return

    from evalcore.cli.options import settings
    from evalcore.formats.options import LoadOptions
    from evalcore.formats.quarantine import unknown_case_warnings
    from evalcore.formats.registry import load_suite

    options = LoadOptions(secrets_required=False).configured(settings(), os.environ, store)
    for warning in unknown_case_warnings(load_suite(Path(suite), options), [entry], suite):
        click.echo(one_line(f"Warning: {warning}"), err=True)
