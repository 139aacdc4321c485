"""`evalcore history`: look back over the runs of a suite; keep the tables up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import orjson

from evalcore.cli.fresh_history import show_progress
from evalcore.cli.history_show import show_command
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode
from evalcore.report.document import on_one_line
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.history.sync import Synced

SHOW: Final = "show"
"""The command that `evalcore history SUITE` calls."""


class HistoryGroup(click.Group):
    """A group whose arguments are those of `show` unless they begin with another command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before what names none."""
        own = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in own and SHOW in self.commands:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


@click.group(cls=HistoryGroup)
def history() -> None:
    """Look back over the runs of a suite; keep the tables of the history up to date."""


@history.command("sync")
@store_option
@json_option
def sync_command(store: str | None, as_json: bool) -> int:
    """Enter every run that has ended into the history's tables.

    The exit code is 4 if a run is damaged and was left out.
    """
    from evalcore.history.sync import sync

    return show_synced(sync(chosen_store(store), progress=show_progress(as_json=as_json)), as_json)


@history.command("rebuild")
@store_option
@json_option
def rebuild_command(store: str | None, as_json: bool) -> int:
    """Make the history's tables anew from the runs.

    Rows of runs whose results were dropped or that were deleted stay. The exit code is 4 if a run
    is damaged.
    """
    from evalcore.history.sync import rebuild

    return show_synced(
        rebuild(chosen_store(store), progress=show_progress(as_json=as_json)), as_json
    )


def show_synced(synced: Synced, as_json: bool) -> int:
    """Print what a sync has done; return the exit code."""
    if as_json:
        document = {
            "added": synced.added,
            "replaced": synced.replaced,
            "unchanged": synced.unchanged,
            "total": synced.total,
            "damaged": dict(synced.damaged),
        }
        click.echo(on_one_line(orjson.dumps(document).decode()))
    else:
        for run_id, reason in synced.damaged.items():
            click.echo(one_line(f"left out: {run_id} is damaged: {reason}"), err=True)
        if synced.unchanged:
            click.echo(f"rows stay of {counted(len(synced.unchanged), 'run')} without results")
        click.echo(
            f"{counted(len(synced.added), 'run')} added, {len(synced.replaced)} replaced, "
            f"{synced.total} in the history"
        )
    return int(ExitCode.ERRORS if synced.damaged else ExitCode.PASS)


history.add_command(show_command, SHOW)
