"""`evalcore report RUN`: the report of a completed run, from the store alone, in any form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from evalcore.cli.export_files import export_option
from evalcore.cli.exporting import export_view
from evalcore.cli.form_output import OUTPUT_HELP, write_form
from evalcore.cli.options import (
    AS_JSON,
    chosen_store,
    json_option,
    store_option,
    verbose_option,
)
from evalcore.cli.showing import present, print_terminal
from evalcore.errors import DamagedRunError, UsageError
from evalcore.pipeline.finish import RunView, view_run
from evalcore.report.registry import JSON, check_form, damaged_json, find_form
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--html", is_flag=True, help="Print one HTML page that needs nothing else.")
@click.option("--junit", is_flag=True, help="Print JUnit XML.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions.")
@click.option(
    "--form", metavar="FORM", help="The same by name: html, junit, markdown, github, json."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help=OUTPUT_HELP)
@export_option
@store_option
@json_option
@verbose_option
def report(
    run_id: str,
    form: str | None,
    output: Path | None,
    store: str | None,
    as_json: bool,
    verbose: bool,
    exports: list[Path],
    **flags: bool,
) -> None:
    """Show the report of a completed run."""
    chosen = _chosen_form({**flags, JSON: as_json}, form)
    if output is not None and chosen is None:
        raise UsageError("-o: say which form to write: --html, --junit, --markdown, …")
    run = choose_run(chosen_store(store), run_id)
    try:
        _show(run, chosen, output, exports, verbose=verbose)
    except DamagedRunError as error:
        click.get_current_context().meta[AS_JSON] = False
        if chosen == JSON:
            write_form((damaged_json(error),), output)
        raise


def _show(
    run: StoredRun, form: str | None, output: Path | None, exports: list[Path], *, verbose: bool
) -> None:
    with view_run(run) as view:
        export_view(view, exports)
        if form is None:
            print_terminal(view, verbose=verbose)
        else:
            write_form(_pieces(view, form), output)


def _chosen_form(flags: dict[str, bool], named: str | None) -> str | None:
    """Return the one form that was asked for; None for the report for people."""
    chosen = [name for name, is_set in flags.items() if is_set]
    if named is not None:
        chosen.append(named if named == JSON else check_form(named))
    if len(set(chosen)) > 1:
        raise UsageError(f"one form at a time: {', '.join(chosen)}")
    return chosen[0] if chosen else None


def _pieces(view: RunView, form: str) -> Iterable[str | bytes]:
    return (view.json(newline=""),) if form == JSON else find_form(form)(present(view))
