"""`evalcore view`: the runs of a store in the browser."""

from __future__ import annotations

import click

from evalcore.cli.interrupts import ended_by_interrupt
from evalcore.cli.options import chosen_store
from evalcore.errors import StoreError, UsageError


@click.command()
@click.argument("store", required=False, metavar="[STORE]")
@click.option("--port", default=8322, type=click.IntRange(0, 65535), help="The port.  [8322]")
@click.option("--open", "open_browser", is_flag=True, help="Open the browser.")
def view(store: str | None, port: int, open_browser: bool) -> None:
    """Show the runs of STORE in the browser, on this machine only, until stopped.

    STORE is a folder or s3://bucket/prefix; by default EVALCORE_STORE, else .evalcore.
    """
    from evalcore.viewer.app import serve_viewer
    from evalcore.viewer.site import require_folder

    def announce(address: str) -> None:
        click.echo(f"evalcore view: {address} (Ctrl-C stops it)", err=True)
        if open_browser:
            click.launch(address)

    chosen = chosen_store(store)
    if store is not None:
        try:
            require_folder(chosen.url)
        except StoreError as error:
            raise UsageError(str(error)) from None
    with ended_by_interrupt():
        serve_viewer(chosen, port, announce)
