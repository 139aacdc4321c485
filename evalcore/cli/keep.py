"""`evalcore baseline`, `quarantine`, `recordings`, `compact`: what a store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from evalcore.cli.options import (
    Age,
    RunName,
    chosen_store,
    json_option,
    load_plainly,
    run_argument,
    store_option,
    suite_name,
)
from evalcore.cli.output import emit, refresh, say, warn
from evalcore.errors import UsageError
from evalcore.model.exchange import ProviderError
from evalcore.model.run import State
from evalcore.model.suite import QUARANTINE_FILE, READY_AFTER_RUNS, QuarantineEntry
from evalcore.model.summary import Counts
from evalcore.recording.content import readable
from evalcore.recording.library import Library, Listed, export_folder, import_folder
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
from evalcore.storage.runs import partial_reasons
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted, one_line

_SHOWN_CHARACTERS: Final = 60
if TYPE_CHECKING:
    from evalcore.history.compaction import Compacted
    from evalcore.model.run import Manifest
    from evalcore.storage.store import ObjectStore

_MEGABYTE: Final = 1_000_000

name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Which of the suite's."
)
suite_option = click.option(
    "--suite", metavar="FILE", help=f"The suite beside {QUARANTINE_FILE}.  [the current folder]"
)


@click.group()
def baseline() -> None:
    """Manage baselines: runs for the gate no_regressions and for run --baseline."""


@baseline.command("set")
@click.argument("suite")
@run_argument
@name_option
@click.option("--force", is_flag=True, help="Take a run that is not measured whole.")
@store_option
@json_option
def set_baseline_command(
    suite: str, run_id: str, name: str, force: bool, store: str | None, as_json: bool
) -> None:
    """Make RUN a baseline of SUITE (its name or its file).

    A run of a part of the suite (--case, --tag, --variant, items in error or skipped by a limit),
    or of which nothing is measured, is refused without --force.
    """
    from evalcore.analytics.integrity import check_run

    opened, suite = chosen_store(store), suite_name(suite, store)
    run = choose_run(opened, run_id, suite=suite)
    manifest = run.manifest()
    if suite_key(manifest.suite) != suite_key(suite):
        raise UsageError(f"run {run_id} is of suite '{manifest.suite}', not of '{suite}'")
    if manifest.state is not State.COMPLETED:
        raise UsageError(
            f"run {manifest.id} is {manifest.state}; only a completed run can be a baseline "
            "(`last` is the newest one)"
        )
    check_run(run)
    if not force:
        _require_whole(manifest)
    pointer = BaselinePointer(manifest.suite, name, manifest.id, iso_time(datetime.now(UTC)))
    before = set_baseline(opened, pointer)
    was = "" if before is None else f" (was {before.run})"
    line = f"baseline '{name}' of suite '{manifest.suite}' is {manifest.id}{was}"
    emit(asdict(pointer) | {"replaced": before and before.run}, as_json, (line,))


def _require_whole(manifest: Manifest) -> None:
    """Raise `UsageError` for a partial run, and for one of which nothing is measured."""
    from evalcore.gates.gate import unmeasured_items

    counts = Counts(**(manifest.counts or {}))
    reasons = partial_reasons(manifest) if counts.measured else (unmeasured_items(counts),)
    if reasons:
        raise UsageError(
            f"run {manifest.id} is not measured whole: {'; '.join(reasons)}. A run of a part of "
            "its suite cannot be a baseline; run the whole suite, or take the run as it is with "
            "--force"
        )


@baseline.command("show")
@click.argument("suite")
@name_option
@store_option
@json_option
def show_baseline(suite: str, name: str, store: str | None, as_json: bool) -> None:
    """Show which run is a baseline of SUITE."""
    opened, suite = chosen_store(store), suite_name(suite, store)
    pointer = get_baseline(opened, suite, name)
    if pointer is None:
        raise UsageError(_none(opened, suite, name))
    emit(asdict(pointer), as_json, (_pointer_line(pointer),))


@baseline.command("list")
@click.option("--suite", metavar="NAME", help="Only baselines of this suite.")
@store_option
@json_option
def list_baselines_command(suite: str | None, store: str | None, as_json: bool) -> None:
    """List the baselines of all suites."""
    chosen_suite = None if suite is None else suite_name(suite, store)
    pointers = list(list_baselines(chosen_store(store), chosen_suite))
    none = "no baselines yet; `evalcore baseline set SUITE RUN` makes one"
    emit([asdict(each) for each in pointers], as_json, map(_pointer_line, pointers), none=none)


@baseline.command("clear")
@click.argument("suite")
@name_option
@store_option
@json_option
def clear_baseline_command(suite: str, name: str, store: str | None, as_json: bool) -> None:
    """Forget a baseline of SUITE; the run itself stays."""
    opened, suite = chosen_store(store), suite_name(suite, store)
    if not clear_baseline(opened, suite, name):
        raise UsageError(_none(opened, suite, name))
    value = {"suite": suite, "name": name, "cleared": True}
    emit(value, as_json, (f"baseline '{name}' of suite '{suite}' is cleared",))


def _none(store: ObjectStore, suite: str, name: str) -> str:
    names = ", ".join(pointer.name for pointer in list_baselines(store, suite))
    has = (
        f"it has: {names}" if names else "it has none; `evalcore baseline set SUITE RUN` makes one"
    )
    return f"suite '{suite}' has no baseline '{name}' in {store.url}; {has}"


def _pointer_line(pointer: BaselinePointer) -> str:
    return f"{pointer.suite}  {pointer.name}  {pointer.run}  set {pointer.set_at}"


@click.group()
def quarantine() -> None:
    """Exclude flaky cases from gates until a date; they run and are reported as before."""


@quarantine.command("add")
@click.argument("case")
@click.option("--until", required=True, metavar="DAY", help="The last day of it: 2026-12-24.")
@click.option("--owner", required=True, metavar="WHO", help="Who looks after the case.")
@click.option("--reason", default="", metavar="TEXT", help="Why the case does not gate.")
@suite_option
@store_option
def add_case(
    case: str, until: str, owner: str, reason: str, suite: str | None, store: str | None
) -> None:
    """Quarantine CASE, or change its entry."""
    from evalcore.formats.quarantine import add_entry, unknown_case_warnings

    path, _ = _quarantine_file(suite)
    entry = QuarantineEntry(case, _day(until), owner.strip(), reason.strip())
    if not case.strip() or not entry.owner:
        raise UsageError("a quarantined case has an id and an owner")
    if suite is not None and not Path(suite).is_dir():
        loaded = load_plainly(Path(suite), store)
        for warning in unknown_case_warnings(loaded, [entry], suite):
            warn(warning)
    verb = "is changed in" if add_entry(path, entry) else "is in"
    say(f"{case} {verb} {path}: it does not gate until {entry.until}")


@quarantine.command("remove")
@click.argument("case")
@suite_option
def remove_case(case: str, suite: str | None) -> None:
    """Let CASE gate again."""
    from evalcore.formats.quarantine import remove_entry
    from evalcore.wording import suggest

    path, entries = _quarantine_file(suite)
    of_case = [entry for entry in entries if entry.case == case]
    if not of_case:
        hint = suggest(case, [entry.case for entry in entries], most=10)
        raise UsageError(f"{path} has no entry of case '{case}'.{hint}")
    for entry in of_case:
        remove_entry(path, case, entry.suite)
    say(f"{case} gates again")


@quarantine.command("list")
@suite_option
@store_option
@json_option
def list_cases(suite: str | None, store: str | None, as_json: bool) -> None:
    """List the entries, which of them have expired, and which cases are ready to return."""
    path, entries = _quarantine_file(suite)
    today = datetime.now(UTC).date()
    ready: dict[QuarantineEntry, tuple[str, ...]] = {}
    if entries:
        from evalcore.history.trend import returning_cases

        opened = chosen_store(store)
        refresh(opened)
        ready = returning_cases(opened, entries)
    rows = [
        asdict(entry)
        | {"expired": entry.has_expired(today), "ready_in": list(ready.get(entry, ()))}
        for entry in entries
    ]
    emit(rows, as_json, map(_entry_line, rows) if rows else (f"{path}: no case is quarantined",))


def _entry_line(row: dict[str, Any]) -> str:
    state = "expired, gates again" if row["expired"] else "does not gate"
    parts = [f"{row['case']}  until {row['until']} ({state})  {row['owner']}"]
    parts += [f"suite {row['suite']}"] if row["suite"] else []
    parts += [row["reason"]] if row["reason"] else []
    if row["ready_in"]:
        suites = ", ".join(row["ready_in"])
        parts.append(f"ready to return: passed in the last {READY_AFTER_RUNS} runs of {suites}")
    return "  ".join(parts)


def _quarantine_file(suite: str | None) -> tuple[Path, tuple[QuarantineEntry, ...]]:
    """Return the path of the quarantine file, and its entries."""
    from evalcore.formats.quarantine import read_quarantine

    folder = Path() if suite is None else Path(suite)
    if suite is not None and not folder.exists():
        raise UsageError(f"{suite} does not exist")
    path = (folder if folder.is_dir() else folder.parent) / QUARANTINE_FILE
    return path, read_quarantine(path) if path.is_file() else ()


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until: expected a day such as 2026-12-24, got '{text}'") from None
    if day < datetime.now(UTC).date():
        raise UsageError(f"--until must not be in the past: {text}")
    return day.isoformat()


@click.group()
def recordings() -> None:
    """Look at recordings of providers' replies, and move them."""


@recordings.command("list")
@store_option
@json_option
def list_recordings(store: str | None, as_json: bool) -> None:
    """List recordings in the order of their keys."""
    summaries = [_summary(listed) for listed in Library(chosen_store(store)).listed()]
    emit(summaries, as_json, map(_summary_line, summaries), none="no recordings yet")


@recordings.command("show")
@click.argument("key", metavar="KEY")
@store_option
@json_option
def show_recording(key: str, store: str | None, as_json: bool) -> None:
    """Show one recording; KEY may be the first digits of its key."""
    library = Library(chosen_store(store))
    digest = library.find(key)
    data = library.data(digest)
    if data is None or library.read(digest) is None:
        raise UsageError(f"recording {key} was just deleted")
    text = readable(data)
    if as_json:
        emit(orjson.loads(text), as_json, ())
    else:
        click.echo(sanitize_terminal(text.decode()), nl=False)


@recordings.command("export")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--run", "run_id", type=RunName(), metavar="RUN", help="Only what this run recorded.")
@store_option
def export_recordings(folder: Path, run_id: str | None, store: str | None) -> None:
    """Write recordings as JSON files into FOLDER, to be committed."""
    opened = chosen_store(store)
    if run_id is not None:
        run_id = choose_run(opened, run_id).run_id
    exported = export_folder(Library(opened), folder, run_id=run_id)
    for digest in exported.damaged:
        warn(f"recording {digest} is damaged and was left out")
    say(f"{counted(exported.files, 'recording')} exported to {folder}")


@recordings.command("import")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@store_option
def import_recordings(folder: Path, store: str | None) -> None:
    """Put the recordings that `export` wrote into FOLDER into the store."""
    imported = import_folder(Library(chosen_store(store)), folder)
    for digest in imported.different:
        warn(
            f"recording {digest}: the store has another answer, which stays; to import the file's: "
            f"evalcore recordings delete {digest}"
        )
    unchanged = imported.same + len(imported.different)
    say(f"{counted(imported.added, 'recording')} imported, {unchanged} there already")


@recordings.command("delete")
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@store_option
def delete_recordings(keys: tuple[str, ...], store: str | None) -> None:
    """Delete recordings, so that they can be recorded anew; all of the KEYs or none."""
    library = Library(chosen_store(store))
    digests = dict.fromkeys(library.find(key) for key in keys)
    for digest in digests:
        library.delete(digest)
    say(f"{counted(len(digests), 'recording')} deleted")


def _summary(listed: Listed) -> dict[str, Any]:
    recording = listed.recording
    if recording is None:
        return {"key": listed.digest, "size": len(listed.data), "problem": listed.problem}
    question, outcome = recording.question, recording.outcome
    error = outcome.kind if isinstance(outcome, ProviderError) else None
    return {
        "key": listed.digest,
        "provider": question.identity.get("provider"),
        "model": question.identity.get("model"),
        "iteration": question.iteration,
        "invocation": question.invocation,
        "recorded_at": recording.origin.recorded_at,
        "run": recording.origin.run,
        "size": len(listed.data),
        "outcome": "reply" if error is None else "error",
        "error": error,
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
    return one_line(text, _SHOWN_CHARACTERS)


def _summary_line(summary: dict[str, Any]) -> str:
    key = summary["key"][:12]
    if "problem" in summary:
        return f"{key}  damaged: {summary['problem']}"
    who = f"{summary['provider']}/{summary['model']}" if summary["model"] else summary["provider"]
    failure = f"  [{summary['error']}]" if summary["error"] else ""
    return (
        f"{key}  {summary['recorded_at'][:19]}  {summary['size']:>7} B  {who} "
        f"#{summary['iteration']}.{summary['invocation']}{failure}  {summary['asked']}"
    )


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
    """Make the small files of the history's tables large ones; drop old results."""
    from evalcore.history.compaction import compact as compact_history

    before = None if age is None else datetime.now(UTC) - age
    done = compact_history(chosen_store(store), drop_results_before=before)
    dropped = [{"run": run.run_id, "suite": run.suite, "bytes": run.bytes} for run in done.dropped]
    retained = [
        {"run": run.run_id, "suite": run.suite, "bytes": run.bytes, "reason": run.reason}
        for run in done.retained
    ]
    tables = [asdict(table) for table in done.tables]
    value = {"tables": tables, "dropped": dropped, "retained": retained}
    emit(value, as_json, _compact_lines(done))


def _compact_lines(done: Compacted) -> Iterator[str]:
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
