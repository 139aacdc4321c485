"""What commands print and write: JSON, lines for people, reports, files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.cli.options import REPORT_FORMS, ROW_FORMS, kind_of
from evalcore.errors import UsageError
from evalcore.report.registry import FORMS, find_form, parse_forms
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.history.sync import Progress
    from evalcore.pipeline.finish import RunView
    from evalcore.report.view import ReportView
    from evalcore.storage.store import ObjectStore


GITHUB = "github"
# Of a step's summary GitHub takes 1 MiB and drops all of it if there is more.
_SUMMARY_BYTES = 1024 * 1024
_SUMMARY_CUT = "\n\n… the rest of this summary is left out: a step's summary holds 1 MiB.\n"
_NARROWEST = 60


def report_forms(text: str | None) -> tuple[str, ...]:
    """Return the forms of `--report FORM,FORM`; raise `UsageError` for an unknown one."""
    try:
        return parse_forms(text or "")
    except UsageError as error:
        raise UsageError(f"--report: {error}") from error


def present(view: RunView) -> ReportView:
    """Return the view as forms read it; files are named from the repository's folder in a build."""
    view.root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    return view


def store_reports(view: RunView, forms: tuple[str, ...]) -> None:
    """Write each form beside `report.json`; `github` also where a build of GitHub's reads it."""
    for form in forms:
        presented = present(view)
        text = "".join(find_form(form)(presented))
        key = f"{view.run.keys.folder}report.{FORMS[form].suffix}"
        view.run.store.put(key, text.encode())
        if form == GITHUB:
            _tell_github(presented, text)


def _tell_github(view: ReportView, commands: str) -> None:
    """Annotate the running build, and append the report to its step's summary."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Standard output holds the report and nothing else; a build reads both.
        click.echo(commands, err=True, nl=False)
    summary_file = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary_file:
        _append_summary(Path(summary_file), "".join(find_form("markdown")(view)))


def _append_summary(path: Path, text: str) -> None:
    """Append Markdown to a step's summary, as much of it as there is room for."""
    try:
        room = _SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        data = text.encode()
        if len(data) > room:
            beginning = data[: max(0, room - len(_SUMMARY_CUT.encode()))]
            data = (
                beginning[: beginning.rfind(b"\n") + 1] + _SUMMARY_CUT.encode()
                if beginning
                else b""
            )
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        # The run has its decision; a summary that cannot be written does not change it.
        click.echo(one_line(f"Warning: GITHUB_STEP_SUMMARY: {error}"), err=True)


def one_line(text: str) -> str:
    """Return foreign text for one line of a terminal or of a log that reads commands."""
    return sanitize_terminal(text).replace("\n", "\\n").replace("\t", " ")


def print_terminal(view: RunView, *, verbose: bool, err: bool = False) -> None:
    """Print the report for people to standard output: every case, or what failed first.

    With `err` it goes to standard error.
    """
    from evalcore.report.terminal import DEFAULT_WIDTH, SHOWN_FAILURES, Style, render_terminal

    on_terminal = (sys.stderr if err else sys.stdout).isatty()
    columns = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    style = Style(one_line, max(_NARROWEST, columns) if on_terminal else DEFAULT_WIDTH)
    presented = present(view)
    if verbose:
        from evalcore.report.terminal import render_verbose

        lines = render_verbose(presented, style)
    else:
        lines = render_terminal(presented, style, most=SHOWN_FAILURES)
    for colour, line in lines:
        click.echo(click.style(line, fg=colour) if colour and on_terminal else line, err=err)
    click.echo(f"run {view.report.run.id} in {sanitize_terminal(view.run.store.url)}", err=err)


def export_view(view: RunView, exports: Sequence[Path], *, append: bool = False) -> None:
    """Write each file, whole or not at all; `append` adds to JSON lines."""
    for path in exports:
        if append and kind_of(path) == "jsonl":
            view.export("jsonl", path, append=True)
            continue
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            _write(view, kind_of(path), part)
            part.replace(path)
        except OSError as error:
            raise UsageError(f"--export: {path}: {error.strerror or error}") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _write(view: RunView, kind: str, path: Path) -> None:
    if kind in ROW_FORMS:
        view.export(kind, path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        for piece in find_form(REPORT_FORMS[kind])(present(view)):
            file.write(piece)


OUTPUT_HELP = "Write the form to this file instead of standard output."


def write_form(pieces: Iterable[str | bytes], output: Path | None) -> None:
    """Write the pieces one after the other; raise `UsageError` if the file cannot be written."""
    if output is not None:
        _write_form_output(pieces, output)
        return
    for piece in pieces:
        click.echo(piece, nl=False)


def _write_form_output(pieces: Iterable[str | bytes], path: Path) -> None:
    try:
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
    except OSError as error:
        raise UsageError(f"-o: {path} cannot be written: {error.strerror}") from error
    click.echo(one_line(f"wrote {path}"), err=True)


@contextmanager
def reserved_stdout() -> Iterator[None]:
    """Let what is written to standard output go to standard error, by Python or below it.

    Programs that are started meanwhile inherit it so.
    """
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        descriptor = os.dup(1)
    except OSError:  # closed by the caller: there is nothing to keep
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with suppress(OSError):
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        with suppress(OSError, ValueError):
            sys.__stdout__.flush() if sys.__stdout__ is not None else None
        os.dup2(descriptor, 1)
        os.close(descriptor)


def refresh(store: ObjectStore) -> None:
    """Bring the history up to date before it is asked; runs that were left out are warned of."""
    from evalcore.history.sync import sync

    for run_id, reason in sync(store, progress=show_progress(as_json=False)).damaged.items():
        click.echo(one_line(f"Warning: {run_id} is damaged and left out: {reason}"), err=True)


def show_progress(*, as_json: bool) -> Progress:
    """Return what shows how many runs are done, on a terminal."""
    if as_json or not sys.stderr.isatty():
        return lambda _done, _total: None

    def show(done: int, total: int) -> None:
        end = "\n" if done == total else ""
        click.echo(f"\r{done} of {total} runs", err=True, nl=False)
        click.echo(end, err=True, nl=False)

    return show
