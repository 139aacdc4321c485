"""Where what is wrong with a script is told: to its loader, or to nobody when it is loaded."""

from __future__ import annotations

from typing import Protocol

from evalcore.errors import UsageError
from evalcore.mistakes.locations import Loc


class MistakeCollector(Protocol):
    """Takes mistakes and warnings, each at a path of the file."""

    def add(self, loc: Loc, message: str) -> None:
        """Note a mistake: the file does not load."""

    def warn(self, loc: Loc, message: str) -> None:
        """Note what is accepted and has no effect, or not the expected one."""

    def line(self, loc: Loc) -> str:
        """Return where a path stands, `file:line` or as much of it as is known."""


class RaisingCollector:
    """For what a loader has accepted: whatever is still wrong is an error at once."""

    def add(self, loc: Loc, message: str) -> None:
        """Raise `UsageError`."""
        path = ".".join(str(part) for part in loc)
        raise UsageError(f"{path}: {message}")

    def warn(self, loc: Loc, message: str) -> None:
        """Nothing: the loader has told it."""

    def line(self, loc: Loc) -> str:
        """Return the path."""
        return ".".join(str(part) for part in loc)
