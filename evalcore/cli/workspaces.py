"""`evalcore workspaces`: folders on this machine that tests worked in, and their removal."""

from __future__ import annotations

import click
import orjson

from evalcore.cli.options import json_option, settings
from evalcore.errors import ExitCode
from evalcore.trust.text import sanitize_terminal
from evalcore.workspaces.folders import (
    Left,
    clean_workspaces,
    left_workspaces,
    workspaces_root,
)


@click.group()
def workspaces() -> None:
    """Look at the folders that tests worked in, and remove those that are left."""


@workspaces.command("list")
@json_option
def list_(*, as_json: bool) -> int:
    """List what is there: of running runs, of killed ones, kept by --keep-workspace."""
    workspaces = list(left_workspaces(workspaces_root(settings().workspaces)))
    if as_json:
        click.echo(orjson.dumps([_entry(left) for left in workspaces]).decode())
        return int(ExitCode.PASS)
    for left in workspaces:
        click.echo(_line(left, "in use" if left.in_use else "left"))
    return int(ExitCode.PASS)


@workspaces.command()
@click.argument("run", required=False)
@json_option
def clean(run: str | None, *, as_json: bool) -> int:
    """Remove what no process works in: of one RUN, or of all; end what still runs in it.

    Also what --keep-workspace has kept.
    """
    removed = []
    for left in clean_workspaces(workspaces_root(settings().workspaces), run):
        removed.append(left)
        if not as_json:
            is_gone = not left.folder.exists()
            click.echo(_line(left, "removed" if is_gone else "cannot be removed"))
    if as_json:
        click.echo(orjson.dumps([_entry(left) for left in removed]).decode())
    return int(ExitCode.PASS)


def _entry(left: Left) -> dict[str, object]:
    return {"run": left.run, "path": str(left.folder), "in_use": left.in_use}


def _line(left: Left, state: str) -> str:
    return f"{sanitize_terminal(left.run)}  {state}  {sanitize_terminal(str(left.folder))}"
