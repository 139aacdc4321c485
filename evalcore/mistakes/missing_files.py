"""What a message says of a file that is not there: the nearest name in its folder."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from evalcore.mistakes.wording import nearest

_MOST_ENTRIES = 2_000


def missing_file(path: Path) -> str:
    """Return `no such file`, with the file of nearly the same name that stands beside it."""
    names: list[str] = []
    with suppress(OSError):
        entries = islice(path.parent.iterdir(), _MOST_ENTRIES)
        names = sorted(entry.name for entry in entries if entry.is_file())
    near = nearest(path.name, names)
    return "no such file" if near is None else f"no such file. Did you mean '{path.parent / near}'?"
