"""`evalcore init`: a suite that runs at once, to start from."""

from __future__ import annotations

import os
import re
import select
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from evalcore.cli.showing import one_line
from evalcore.cli.starter_suites import STARTERS, starter_files
from evalcore.errors import UsageError

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_DEFAULT_NAME: Final = "quickstart"
_INPUT_WAIT_S: Final = 1.0


@click.command()
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option("--format", "format_", metavar="FORMAT", help=f"One of {', '.join(STARTERS)}.")
@click.option("--name", metavar="NAME", help="The suite's name, and that of its file.")
def init(folder: str, format_: str | None, name: str | None) -> None:
    """Write a small suite to FOLDER that runs without a key or a server.

    Asks for the format and the name; the answers may be piped in, one a line. Without a terminal
    and answers --format is required, and the name is quickstart by default. No file is overwritten.
    A YAML suite names its JSON Schema, which stands beside it, for editors.
    """
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not asks and format_ is None:
        format_, piped_name = _piped_answers()
        name = piped_name if name is None else name
    format_ = _ask_format() if format_ is None else _checked_format(format_)
    if name is None:
        name = _DEFAULT_NAME
        if asks:
            name = click.prompt("Name of the suite", default=_DEFAULT_NAME, err=True)
    files = starter_files(format_, _checked_name(name))
    root = Path(folder)
    _write(root, files)
    for file in files:
        click.echo(f"wrote {one_line(str(root / file))}", err=True)
    suite = shlex.quote(os.path.normpath(root / next(iter(files))))
    click.echo("next:", err=True)
    click.echo(f"evalcore run {suite}\nevalcore report latest --verbose")


def _ask_format() -> str:
    formats = list(STARTERS)
    click.echo("What do you evaluate?", err=True)
    for number, (format_, starter) in enumerate(STARTERS.items(), 1):
        click.echo(f"  {number}  {format_:17} {starter.about}", err=True)
    number = click.prompt(
        "Number", default=1, type=click.IntRange(1, len(formats)), show_default=True, err=True
    )
    return formats[number - 1]


def _piped_answers() -> tuple[str, str]:
    """Return format and name out of a pipe or a file; raise `UsageError` where none comes."""
    answer = sys.stdin.readline() if _has_input() else ""
    if not answer:
        raise UsageError(
            "there is no terminal to ask on: --format required, as in "
            f"evalcore init --format test-file --name {_DEFAULT_NAME}"
        )
    formats, choice = list(STARTERS), answer.strip() or "1"
    if choice.isdecimal() and 1 <= int(choice) <= len(formats):
        choice = formats[int(choice) - 1]
    elif choice not in STARTERS:
        raise UsageError(
            f"{choice!r} is no format: answer with a number from 1 to {len(formats)}, or one of "
            f"{', '.join(formats)}"
        )
    return choice, sys.stdin.readline().strip() or _DEFAULT_NAME


def _has_input() -> bool:
    """Whether something can be read at once: a job's standard input may stay open and empty."""
    try:
        return bool(select.select([sys.stdin], [], [], _INPUT_WAIT_S)[0])
    except (OSError, ValueError):
        return False  # it is closed


def _checked_format(format_: str) -> str:
    if format_ not in STARTERS:
        raise UsageError(f"--format: unknown format '{format_}'; formats: {', '.join(STARTERS)}")
    return format_


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"--name: {name!r} is no name of a suite; write lower-case letters, digits, - and _, "
            f"as in {_DEFAULT_NAME}"
        )
    if name.replace("-", "_") in sys.stdlib_module_names:
        raise UsageError(f"--name: Python's standard library has a module {name}; write another")
    return name


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    """Write all files, or none if one of them is there with other contents."""
    existing = [name for name, data in files.items() if not _can_write(root / name, data)]
    if existing:
        listed = ", ".join(str(root / name) for name in existing)
        raise UsageError(
            f"nothing was written: {listed} would be overwritten; choose another --name"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            if not (root / name).exists():
                with (root / name).open("xb") as file:
                    file.write(data)
    except OSError as error:
        raise UsageError(f"{root}: cannot be written to: {error.strerror}") from error


def _can_write(path: Path, data: bytes) -> bool:
    """Whether there is no such file, or a schema that is the same."""
    if not (path.exists() or path.is_symlink()):
        return True
    return path.name.endswith(".schema.json") and path.is_file() and path.read_bytes() == data
