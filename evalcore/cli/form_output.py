"""Write a form of a report to standard output or to a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from evalcore.cli.showing import one_line
from evalcore.errors import UsageError

OUTPUT_HELP = "Write the form to this file instead of standard output."


def write_form(pieces: Iterable[str | bytes], output: Path | None) -> None:
    """Write the pieces one after the other; raise `UsageError` if the file cannot be written."""
    if output is not None:
        _write(pieces, output)
        return
    for piece in pieces:
        click.echo(piece, nl=False)


def _write(pieces: Iterable[str | bytes], path: Path) -> None:
    try:
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
    except OSError as error:
        raise UsageError(f"-o: {path} cannot be written: {error.strerror}") from error
    click.echo(one_line(f"wrote {path}"), err=True)
