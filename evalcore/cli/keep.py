"""`evalcore baseline`, `quarantine`, `recordings`, `workspaces`, `compact`: what a store keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.analytics.integrity import check_run
from evalcore.cli.options import Age, chosen_store, json_option, settings, store_option, suite_name
from evalcore.cli.output import one_line
from evalcore.errors import ExitCode, UsageError
from evalcore.gates.gate import unmeasured_items
from evalcore.model.exchange import ProviderError
from evalcore.model.run import Manifest, State
from evalcore.model.suite import QUARANTINE_FILE, READY_AFTER_RUNS, QuarantineEntry
from evalcore.model.summary import Counts
from evalcore.recording.content import readable
from evalcore.recording.library import Library, Listed, export_folder, import_folder
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
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted
from evalcore.workspaces.folders import Left, clean_workspaces, left_workspaces, workspaces_root

if TYPE_CHECKING:
    from evalcore.history.compaction import Compacted


_SHOWN_WORDS = 60


@click.group()
def recordings() -> None:
    """Look at recordings of providers' answers, and move them."""


@recordings.command("list")
@store_option
@json_option
def list_command(store: str | None, as_json: bool) -> None:
    """List recordings in the order of their keys."""
    summaries = [_summary(listed) for listed in Library(chosen_store(store)).listed()]
    if as_json:
        click.echo(on_one_line(orjson.dumps(summaries).decode()))
        return
    for summary in summaries:
        click.echo(one_line(_line(summary)))
    if not summaries:
        click.echo("no recordings yet", err=True)


@recordings.command("show")
@click.argument("key", metavar="KEY")
@store_option
@json_option
def show_command(key: str, store: str | None, as_json: bool) -> None:
    """Show one recording; KEY may be the first digits of its key."""
    library = Library(chosen_store(store))
    digest = library.find(key)
    data = library.data(digest)
    if data is None or library.read(digest) is None:
        raise UsageError(f"recording {key} was just deleted")
    text = readable(data)
    if as_json:
        click.echo(on_one_line(orjson.dumps(orjson.loads(text)).decode()))
    else:
        click.echo(sanitize_terminal(text.decode()), nl=False)


@recordings.command("export")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--run", "run_id", metavar="RUN", help="Only what this run recorded.")
@store_option
def export_command(folder: Path, run_id: str | None, store: str | None) -> None:
    """Write recordings as JSON files into FOLDER, to be committed."""
    opened = chosen_store(store)
    if run_id is not None:
        run_id = choose_run(opened, run_id).run_id
    exported = export_folder(Library(opened), folder, run_id=run_id)
    for digest in exported.damaged:
        click.echo(f"Warning: recording {digest} is damaged and was left out", err=True)
    click.echo(f"{_counted(exported.files)} exported to {one_line(str(folder))}")


@recordings.command("import")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@store_option
def import_command(folder: Path, store: str | None) -> None:
    """Put the recordings that `export` wrote into FOLDER into the store."""
    imported = import_folder(Library(chosen_store(store)), folder)
    for digest in imported.different:
        line = (
            f"Warning: recording {digest}: the store has another answer, which stays; to import "
            f"the file's: evalcore recordings delete {digest}"
        )
        click.echo(line, err=True)
    unchanged = imported.same + len(imported.different)
    click.echo(f"{_counted(imported.added)} imported, {unchanged} there already")


@recordings.command("delete")
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@store_option
def delete_command(keys: tuple[str, ...], store: str | None) -> None:
    """Delete recordings, so that they can be recorded anew; all of the KEYs or none."""
    library = Library(chosen_store(store))
    digests = dict.fromkeys(library.find(key) for key in keys)
    for digest in digests:
        library.delete(digest)
    click.echo(f"{_counted(len(digests))} deleted")


def _summary(listed: Listed) -> dict[str, Any]:
    recording = listed.recording
    if recording is None:
        return {"key": listed.digest, "size": len(listed.data), "problem": listed.problem}
    question, outcome = recording.question, recording.outcome
    failed = isinstance(outcome, ProviderError)
    return {
        "key": listed.digest,
        "provider": question.identity.get("provider"),
        "model": question.identity.get("model"),
        "iteration": question.iteration,
        "invocation": question.invocation,
        "recorded_at": recording.origin.recorded_at,
        "run": recording.origin.run,
        "size": len(listed.data),
        "outcome": "error" if failed else "reply",
        "error": outcome.kind if isinstance(outcome, ProviderError) else None,
        "asked": _beginning(question.identity),
    }


def _beginning(identity: Any) -> str:
    """Return the first words of the last message, or of an HTTP request."""
    messages = identity.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else identity.get("parameters")
    content = last.get("content") if isinstance(last, dict) else None
    if isinstance(content, list):
        content = next((part.get("value") for part in content if isinstance(part, dict)), None)
    text = content if isinstance(content, str) else orjson.dumps(last).decode()
    words = " ".join(text.split())
    return words if len(words) <= _SHOWN_WORDS else f"{words[: _SHOWN_WORDS - 1]}…"


def _line(summary: dict[str, Any]) -> str:
    if "problem" in summary:
        return f"{summary['key'][:12]}  damaged: {summary['problem']}"
    when = summary["recorded_at"][:19]
    who = f"{summary['provider']}/{summary['model']}" if summary["model"] else summary["provider"]
    failure = f"  [{summary['error']}]" if summary["error"] else ""
    size = f"{summary['size']:>7} B"
    turn = f"#{summary['iteration']}.{summary['invocation']}"
    return f"{summary['key'][:12]}  {when}  {size}  {who} {turn}{failure}  {summary['asked']}"


def _counted(number: int) -> str:
    return f"{number} recording{'' if number == 1 else 's'}"


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
def show_command_baseline(suite: str, name: str, store: str | None, as_json: bool) -> None:
    """Show which run is a baseline of SUITE."""
    opened, suite = chosen_store(store), suite_name(suite, store)
    pointer = get_baseline(opened, suite, name)
    if pointer is None:
        raise UsageError(_none(opened, suite, name))
    if as_json:
        _print_json(asdict(pointer))
    else:
        click.echo(one_line(_line_baseline(pointer)))


@baseline.command("list")
@click.option("--suite", metavar="NAME", help="Only baselines of this suite.")
@store_option
@json_option
def list_command_baseline(suite: str | None, store: str | None, as_json: bool) -> None:
    """List the baselines of all suites."""
    chosen_suite = None if suite is None else suite_name(suite, store)
    pointers = list(list_baselines(chosen_store(store), chosen_suite))
    if as_json:
        _print_json([asdict(pointer) for pointer in pointers])
        return
    for pointer in pointers:
        click.echo(one_line(_line_baseline(pointer)))
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


def _line_baseline(pointer: BaselinePointer) -> str:
    return f"{pointer.suite}  {pointer.name}  {pointer.run}  set {pointer.set_at}"


def _print_json(value: object) -> None:
    click.echo(on_one_line(orjson.dumps(value).decode()))


_MEGABYTE: Final = 1_000_000


@click.command()
@click.option(
    "--drop-results-older-than",
    "age",
    metavar="AGE",
    type=Age(),
    help="Delete the raw results of runs that ended longer ago (90d), if their rows are in the "
    "history; manifests, plans and reports stay, and baselines keep theirs.",
)
@store_option
@json_option
def compact(age: timedelta | None, store: str | None, as_json: bool) -> None:
    """Make the small files of the history's tables large ones."""
    from evalcore.history.compaction import compact as compact_history

    before = None if age is None else datetime.now(UTC) - age
    done = compact_history(chosen_store(store), drop_results_before=before)
    if as_json:
        click.echo(on_one_line(orjson.dumps(_document(done)).decode()))
        return
    for line in _lines(done):
        click.echo(one_line(line))


def _document(done: Compacted) -> dict[str, Any]:
    return {
        "tables": [asdict(table) for table in done.tables],
        "dropped": [
            {"run": run.run_id, "suite": run.suite, "bytes": run.bytes} for run in done.dropped
        ],
        "retained": [
            {"run": run.run_id, "suite": run.suite, "bytes": run.bytes, "reason": run.reason}
            for run in done.retained
        ],
    }


def _lines(done: Compacted) -> Iterator[str]:
    for table in done.tables:
        yield (
            f"{table.table:<10} {counted(table.files_before, 'file')} → {table.files_after}, "
            f"{counted(table.removed, 'old file')} removed"
        )
    for run in done.retained:
        yield f"kept: the results of {run.run_id} ({run.suite}): it {run.reason}"
    if done.dropped:
        freed = sum(run.bytes for run in done.dropped) / _MEGABYTE
        yield f"dropped the results of {counted(len(done.dropped), 'run')}: {freed:.1f} MB"


@click.group()
def workspaces() -> None:
    """Look at the folders that tests worked in, and remove those that are left."""


@workspaces.command("list")
@json_option
def list_(*, as_json: bool) -> int:
    """List what is there: of running runs, of killed ones, kept by --keep-workspace."""
    workspaces = list(left_workspaces(workspaces_root(settings().workspaces)))
    if as_json:
        click.echo(orjson.dumps([_entry(left) for left in workspaces]).decode())
        return int(ExitCode.PASS)
    for left in workspaces:
        click.echo(_line_workspaces(left, "in use" if left.in_use else "left"))
    return int(ExitCode.PASS)


@workspaces.command("clean")
@click.argument("run", required=False)
@json_option
def clean(run: str | None, *, as_json: bool) -> int:
    """Remove what no process works in: of one RUN, or of all; end what still runs in it.

    Also what --keep-workspace has kept.
    """
    removed = []
    for left in clean_workspaces(workspaces_root(settings().workspaces), run):
        removed.append(left)
        if not as_json:
            is_gone = not left.folder.exists()
            click.echo(_line_workspaces(left, "removed" if is_gone else "cannot be removed"))
    if as_json:
        click.echo(orjson.dumps([_entry(left) for left in removed]).decode())
    return int(ExitCode.PASS)


def _entry(left: Left) -> dict[str, object]:
    return {"run": left.run, "path": str(left.folder), "in_use": left.in_use}


def _line_workspaces(left: Left, state: str) -> str:
    return f"{sanitize_terminal(left.run)}  {state}  {sanitize_terminal(str(left.folder))}"


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
def list_command_quarantine(suite: str | None, store: str | None, as_json: bool) -> None:
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
        click.echo(one_line(_line_quarantine(entry, today, ready.get(entry, ()))))


def _line_quarantine(entry: QuarantineEntry, today: date, ready_in: tuple[str, ...]) -> str:
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
    from evalcore.cli.output import refresh
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
