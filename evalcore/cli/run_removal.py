"""`evalcore runs delete`: shown first, done with `--yes`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import orjson

from evalcore.cli.fresh_history import refresh
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.pipeline.removal import Progress


@click.command("delete")
@click.argument("run_names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Delete them; without it they are only listed.")
@store_option
@json_option
def delete_command(run_names: tuple[str, ...], yes: bool, store: str | None, as_json: bool) -> int:
    """Delete runs with their plans, results and reports; their rows in the history stay.

    If a run has to stay (a baseline, a run that another one was compared with, a running one)
    nothing is deleted and the exit code is 2.
    """
    from evalcore.pipeline.removal import remove_runs, require_removable

    opened = chosen_store(store)
    runs = {run.run_id: run for run in (choose_run(opened, name) for name in run_names)}
    refresh(opened)
    require_removable(opened, [*runs.values()], now=datetime.now(UTC))
    if yes:
        remove_runs([*runs.values()], _progress(as_json=as_json))
    if as_json:
        click.echo(on_one_line(orjson.dumps({"deleted": yes, "runs": [*runs]}).decode()))
        return int(ExitCode.PASS)
    for run in runs.values():
        click.echo(one_line(f"{'gone  ' if yes else 'delete'}  {run.run_id}  {run.keys.suite}"))
    after = "deleted" if yes else "would be deleted; --yes deletes"
    click.echo(f"{counted(len(runs), 'run')} {after}", err=True)
    return int(ExitCode.PASS)


def _progress(*, as_json: bool) -> Progress:
    if as_json or not sys.stderr.isatty():
        return lambda _done, _total: None

    def show(done: int, total: int) -> None:
        click.echo(f"\r{done} of {total} runs deleted", err=True, nl=done == total)

    return show
