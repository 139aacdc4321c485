"""The files that this process opens to read: those that a run was made from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any, Final

Stamp = tuple[int, int, int] | None
"""Time in ns, size and inode of a file; None if there is none."""
_ENGINE: Final = Path(__file__).resolve().parents[1]
_SKIPPED: Final = frozenset({"__pycache__", "dist-packages", "node_modules", "site-packages"})
_WRITES: Final = os.O_WRONLY | os.O_RDWR


def stamp_of(path: str | Path) -> Stamp:
    """Return what changes when a file is written."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class OpenedFiles:
    """The files that this process reads and the folders that it lists, below the bounds.

    The store's own do not count, nor what is installed or hidden.
    """

    def __init__(self, bounds: Sequence[Path], store: Path | None) -> None:
        self._bounds = [bound.resolve() for bound in bounds]
        self._store = None if store is None else store.resolve()
        self._counted: dict[str, str | None] = {}
        self.files: dict[str, Stamp] = {}
        self.folders: set[str] = set()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of `sys.addaudithook`."""
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(flags, int) and flags & _WRITES):
                self._note_file(path)
        elif event == "os.scandir" and (folder := self._location(arguments[0])) is not None:
            self.folders.add(folder)

    def _note_file(self, path: object) -> None:
        if isinstance(path, str) and path.endswith(".pyc"):
            with suppress(ValueError):
                path = source_from_cache(path)
        location = self._location(path)
        if location is not None and location not in self.files:
            self.files[location] = stamp_of(location)

    def _location(self, path: object) -> str | None:
        """Return the absolute path if it counts."""
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.path.abspath(path)  # noqa: PTH100 - a link is watched where it stands
        if text not in self._counted:
            self._counted[text] = text if self._counts(Path(text)) else None
        return self._counted[text]

    def _counts(self, path: Path) -> bool:
        if self._store is not None and path.is_relative_to(self._store):
            return False
        bound = next((bound for bound in self._bounds if path.is_relative_to(bound)), None)
        if bound is None or path.is_relative_to(_ENGINE):
            return False
        *folders, name = path.relative_to(bound).parts or (".",)
        return name != ".git" and not any(
            folder in _SKIPPED or folder.startswith(".") for folder in folders
        )
