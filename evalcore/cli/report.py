"""`evalcore report RUN`: the report of a completed run, from the store alone."""

from __future__ import annotations

import click

from evalcore.cli.options import chosen_store, json_option, store_option, verbose_option
from evalcore.cli.showing import VERBOSE_FAILURES, print_terminal
from evalcore.pipeline import view_run
from evalcore.report.markdown import render_markdown
from evalcore.storage.runs import find_run


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@store_option
@json_option
@verbose_option
def report(run_id: str, markdown: bool, store: str | None, as_json: bool, verbose: bool) -> None:
    """Show the report of a completed run."""
    with view_run(find_run(chosen_store(store), run_id)) as view:
        if as_json:
            click.echo(view.json(newline=""), nl=False)
        elif markdown:
            click.echo(render_markdown(view.report, view.failures(VERBOSE_FAILURES)), nl=False)
        else:
            print_terminal(view, verbose=verbose)
