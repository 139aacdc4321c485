"""The files that a pattern matches below a root, without leaving it and within bounds.

Unlike `glob.glob`, nothing outside the root is ever listed, `**` follows no symbolic link, and
what it may take is bounded: a suite may name `**/*.yaml` beside a link to `/`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePath
from typing import Final, TypeAlias

from evalcore.errors import NotAllowedError, UsageError

_ANY_DEPTH: Final = "**"
_MAGIC: Final = re.compile(r"[*?[]")
_Part: TypeAlias = re.Pattern[str] | None
_Parts: TypeAlias = tuple[_Part, ...]
MOST_ENTRIES: Final = 500_000
MOST_FILES: Final = 100_000
MOST_SECONDS: Final = 30.0


def has_magic(pattern: str) -> bool:
    """Whether a name is a pattern: `*`, `?`, `[…]` or `**` stands in it."""
    return _MAGIC.search(pattern) is not None


def matching_files(
    pattern: str, folder: Path, root: Path, *, most_entries: int = MOST_ENTRIES
) -> list[str]:
    """Return the names, relative to `folder`, of the files below `root` that match, sorted.

    `*`, `?` and `[…]` match within one name, `**` any number of folders; a name that begins with a
    dot is matched only where the pattern spells the dot. A folder that is a symbolic link is
    entered where a part of the pattern other than `**` matches it and it stays below `root`. Raise
    `NotAllowedError` for a pattern that leads outside `root`, `UsageError` where there is too much
    to look through.
    """
    folder, root = folder.resolve(), root.resolve()
    parts = PurePath(pattern).parts
    first = next((at for at, part in enumerate(parts) if has_magic(part)), len(parts))
    base = Path(os.path.normpath(folder.joinpath(*parts[:first])))
    if not base.resolve().is_relative_to(root) or ".." in parts[first:]:
        message = f"'{pattern}' leads outside {root}"
        raise NotAllowedError(f"{message}; a suite may read only what lies below that folder")
    walk = _Walk(pattern, root, most_entries)
    files = walk.files(base, tuple(map(_matcher, parts[first:])))
    return sorted({os.path.relpath(path, folder) for path in files})


def _matcher(part: str) -> _Part:
    """Return what matches one name, None for any number of folders."""
    if part == _ANY_DEPTH:
        return None
    hidden = "" if part.startswith(".") else r"(?!\.)"
    return re.compile(hidden + translate(part))


def _is_match(entry: os.DirEntry[str], part: _Part) -> bool:
    """Whether a file's name matches; a link to nothing is left to who reads the file."""
    named = not entry.name.startswith(".") if part is None else part.fullmatch(entry.name)
    return bool(named) and not entry.is_dir()


@dataclass
class _Walk:
    """One look through the folders below `root`; counts what it sees."""

    pattern: str
    root: Path
    most_entries: int
    entries: int = 0
    ends_at: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)

    def files(self, base: Path, parts: _Parts) -> list[str]:
        """Return the paths of the files that match below `base`; each may come twice."""
        matches: list[str] = []
        open_folders = [(os.fspath(base), parts)]
        while open_folders:
            folder, left = open_folders.pop()
            part, rest = left[0], left[1:]
            if part is None and rest:
                # `**` also stands for no folder at all.
                open_folders.append((folder, rest))
            for entry in self._entries(folder):
                below = self._below(entry, part, left)
                if below is not None:
                    open_folders.append((entry.path, below))
                elif not rest and _is_match(entry, part):
                    matches.append(entry.path)
            if len(matches) > MOST_FILES:
                raise self._too_much(f"more than {MOST_FILES} files match")
        return matches

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.entries += 1
                    if self.entries > self.most_entries:
                        raise self._too_much(f"more than {self.most_entries} files and folders")
                    yield entry
        except OSError:  # gone meanwhile, or not ours to read
            return
        if time.monotonic() > self.ends_at:
            raise self._too_much(f"it took longer than {MOST_SECONDS:g} s")

    def _below(self, entry: os.DirEntry[str], part: _Part, left: _Parts) -> _Parts | None:
        """Return what is to match below a folder; None for what is not to be entered."""
        if part is None:
            enters = not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            return left if enters else None
        if len(left) == 1 or part.fullmatch(entry.name) is None or not entry.is_dir():
            return None
        linked = entry.is_symlink()
        inside = not linked or Path(entry.path).resolve().is_relative_to(self.root)
        return left[1:] if inside else None

    def _too_much(self, what: str) -> UsageError:
        return UsageError(f"'{self.pattern}' is too wide: {what}; name a folder in it")
