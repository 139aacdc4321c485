"""`evalcore recordings`: what is recorded in a store, and how it moves to another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import UsageError
from evalcore.model.exchange import ProviderError
from evalcore.recording.content import readable
from evalcore.recording.library import Library, Listed, export_folder, import_folder
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.trust.text import sanitize_terminal

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
