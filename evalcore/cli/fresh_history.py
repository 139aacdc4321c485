"""The history is brought up to date by the commands that ask it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from evalcore.cli.showing import one_line

if TYPE_CHECKING:
    from evalcore.history.sync import Progress
    from evalcore.storage.store import ObjectStore


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
