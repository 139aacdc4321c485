"""Where mistakes in a script go: to its loader, or into an error when it is loaded."""

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
    """For what a loader has accepted: a mistake that remains is an error at once."""

    def add(self, loc: Loc, message: str) -> None:
        """Raise `UsageError`."""
        path = ".".join(str(part) for part in loc)
        raise UsageError(f"{path}: {message}")

    def warn(self, loc: Loc, message: str) -> None:
        """Do nothing: the loader has reported it."""

    def line(self, loc: Loc) -> str:
        """Return the path."""
        return ".".join(str(part) for part in loc)
