"""Print a run's view for people, and store the forms of its report that were asked for."""

from __future__ import annotations

import sys

import click

from evalcore.errors import UsageError
from evalcore.pipeline import RunView
from evalcore.report.registry import FORMS, find_form
from evalcore.trust.text import sanitize_terminal

SHOWN_FAILURES = 10
VERBOSE_FAILURES = 200


def report_forms(text: str | None) -> tuple[str, ...]:
    """Return the forms of `--report FORM,FORM`; raise `UsageError` for an unknown one."""
    forms = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    for form in forms:
        if form not in FORMS:
            raise UsageError(f"--report: unknown form '{form}'; known: {', '.join(FORMS)}")
    return forms


def store_reports(view: RunView, forms: tuple[str, ...]) -> None:
    """Write each form beside `report.json`."""
    for form in forms:
        text = find_form(form)(view.report, view.failures(VERBOSE_FAILURES))
        key = f"{view.run.keys.folder}report.{FORMS[form].suffix}"
        view.run.store.put(key, text.encode())


def one_line(text: str) -> str:
    """Return foreign text for one line of a terminal or of a log that reads commands."""
    return sanitize_terminal(text).replace("\n", "\\n").replace("\t", " ")


def print_terminal(view: RunView, *, verbose: bool) -> None:
    """Print the report for people to standard output: what failed first."""
    from evalcore.report.terminal import render_terminal

    most = VERBOSE_FAILURES if verbose else SHOWN_FAILURES
    counts = view.report.summary.counts
    failures = () if counts.passed == counts.planned else view.failures(most)
    lines = render_terminal(view.report, failures, clean=one_line)
    colour = sys.stdout.isatty()
    for style, line in lines:
        click.echo(click.style(line, fg=style) if style and colour else line)
    click.echo(f"run {view.report.run.id} in {sanitize_terminal(view.run.store.url)}")
