"""Commands that installed packages contribute: entry points of the group `evalcore.commands`.

An entry point names a `click.Command`; its module should import nothing that its help does not
need, because `evalcore --help` imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

GROUP = "evalcore.commands"


def find_command(name: str) -> click.Command | None:
    """Import and return the command that a package contributes under `name`."""
    value = _values().get(name)
    return None if value is None else _load(value)


def command_names() -> list[str]:
    """Return the contributed commands in alphabetical order; imports none of them."""
    return sorted(_values())


def described_commands() -> list[tuple[str, str]]:
    """Return the contributed commands with one line each."""
    rows = []
    for name, value in sorted(_values().items()):
        try:
            about = _load(value).get_short_help_str(limit=100)
        except Exception as error:  # noqa: BLE001  (a contributed module)
            about = f"(cannot be imported: {type(error).__name__}: {error})"
        rows.append((name, about))
    return rows


def _load(value: str) -> click.Command:
    module, _, name = value.partition(":")
    command: click.Command = getattr(import_module(module), name)
    return command


def _values() -> dict[str, str]:
    """Return the group's entry points; of two with one name the first on the path counts.

    Read by hand: importing `importlib.metadata` takes longer than all of `evalcore --help`.
    """
    commands: dict[str, str] = {}
    for text in _entry_point_files():
        if f"[{GROUP}]" not in text:
            continue
        section = text.partition(f"[{GROUP}]")[2].partition("\n[")[0]
        for line in section.splitlines():
            name, equals, value = line.partition("=")
            if equals:
                commands.setdefault(name.strip(), value.strip())
    return commands


def _entry_point_files() -> Iterator[str]:
    for folder in dict.fromkeys(sys.path):
        try:
            files = sorted(Path(folder or ".").glob("*.dist-info/entry_points.txt"))
            yield from (file.read_text("utf-8") for file in files)
        except (OSError, UnicodeDecodeError):
            continue  # no folder, or not readable: nothing is installed there
