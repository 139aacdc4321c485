"""`evalcore report RUN`: the report of a completed run, from the store alone, in any form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from evalcore.cli.exporting import export_option, export_view
from evalcore.cli.options import chosen_store, json_option, store_option, verbose_option
from evalcore.cli.showing import one_line, present, print_terminal
from evalcore.errors import UsageError
from evalcore.pipeline import RunView, view_run
from evalcore.report.registry import JSON, check_form, find_form
from evalcore.storage.runs import find_run

_OUTPUT_HELP = "Write the form to this file instead of standard output."


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--html", is_flag=True, help="Print one HTML page that needs nothing else.")
@click.option("--junit", is_flag=True, help="Print JUnit XML.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions.")
@click.option(
    "--form", metavar="FORM", help="The same by name: html, junit, markdown, github, json."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help=_OUTPUT_HELP)
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
    with view_run(find_run(chosen_store(store), run_id)) as view:
        export_view(view, exports)
        if chosen is None:
            print_terminal(view, verbose=verbose)
        elif output is None:
            for piece in _pieces(view, chosen):
                click.echo(piece, nl=False)
        else:
            _write(_pieces(view, chosen), output)


def _chosen_form(flags: dict[str, bool], named: str | None) -> str | None:
    """Return the one form that was asked for; None for the report for people."""
    asked = [name for name, given in flags.items() if given]
    if named is not None:
        asked.append(named if named == JSON else check_form(named))
    if len(set(asked)) > 1:
        raise UsageError(f"one form at a time: {', '.join(asked)}")
    return asked[0] if asked else None


def _pieces(view: RunView, form: str) -> Iterable[str | bytes]:
    return (view.json(newline=""),) if form == JSON else find_form(form)(present(view))


def _write(pieces: Iterable[str | bytes], path: Path) -> None:
    try:
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
    except OSError as error:
        raise UsageError(f"-o: {path} cannot be written: {error.strerror}") from error
    click.echo(one_line(f"wrote {path}"), err=True)
