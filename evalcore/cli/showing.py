"""Print a run's view for people, and write the forms of its report that were asked for."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.errors import UsageError
from evalcore.report.registry import FORMS, find_form, parse_forms
from evalcore.trust.text import sanitize_terminal

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView
    from evalcore.report.view import ReportView

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
