"""What a message says of a file that is not there: the nearest name in its folder."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from evalcore.mistakes.wording import nearest

_MOST_ENTRIES = 2_000


def missing_file(path: Path) -> str:
    """Return `no such file`, with the file of nearly the same name that stands beside it.

    Names are compared up to their first dot: what follows it says little of which file is meant.
    """
    names: dict[str, str] = {}
    with suppress(OSError):
        entries = islice(path.parent.iterdir(), _MOST_ENTRIES)
        files = sorted(entry.name for entry in entries if entry.is_file())
        names = {_before_dot(name): name for name in reversed(files)}
    near = nearest(_before_dot(path.name), names)
    if near is None:
        return "no such file"
    return f"no such file. Did you mean '{path.parent / names[near]}'?"


def _before_dot(name: str) -> str:
    return name.partition(".")[0]
