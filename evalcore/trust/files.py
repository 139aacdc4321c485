"""Where a file that a suite names is looked for, and what lies out of its reach."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from evalcore.errors import NotAllowedError, UsageError
from evalcore.settings import ancestors_within, repository_root

__all__ = ["place_inside", "repository_root", "resolve_folder", "resolve_inside"]

_RULE = "a suite may read only what lies below that folder"


def resolve_inside(root: Path, folder: Path, name: str) -> Path:
    """Return the resolved path of the file `name`, looked for from `folder` upward to `root`.

    The nearest one wins. Raise `NotAllowedError` if the name or a symbolic link leads outside
    `root`, `UsageError` with the places where it was looked for if there is none. An absolute name
    that does not lie inside `root` starts at `root`.
    """
    return _resolved(root, folder, name, _file_at, "file")


def resolve_folder(root: Path, folder: Path, name: str) -> Path:
    """Return the resolved path of a folder that a suite names; else as `resolve_inside`."""
    return _resolved(root, folder, name, _folder_at, "folder")


def place_inside(folder: Path, name: str, kind: str = "folder") -> Path:
    """Return the resolved path of what `folder` / `name` is or will be.

    Raise `NotAllowedError` if it lies outside the repository that holds `folder`, or a symbolic
    link on the way leads out of it.
    """
    root = repository_root(folder)
    try:
        path = (folder / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name!r} is no name of a {kind}: {error}") from error
    if not path.is_relative_to(root):
        raise NotAllowedError(f"{kind} {name!r} lies outside {root}; {_RULE}")
    return path


def _resolved(
    root: Path, folder: Path, name: str, entry_at: Callable[[Path], Path | None], kind: str
) -> Path:
    root, folder = root.resolve(), folder.resolve()
    if not folder.is_relative_to(root):
        raise ValueError(f"{folder} does not lie below {root}")
    candidates: list[Path] = []
    if name.startswith("/") and not Path(os.path.normpath(name)).is_relative_to(root):
        rooted = entry_at(Path(os.path.normpath(f"{root}/{name.lstrip('/')}")))
        if rooted is not None and rooted.is_relative_to(root):
            return rooted
    for start in ancestors_within(folder, root):
        candidate = Path(os.path.normpath(start / name))
        if not candidate.is_relative_to(root):
            continue
        candidates.append(candidate)
        entry = entry_at(candidate)
        if entry is None:
            continue
        if not entry.is_relative_to(root):
            message = f"{kind} {name!r} leads outside {root} through a symbolic link"
            raise NotAllowedError(f"{message}; {_RULE}")
        return entry
    if not candidates:
        message = f"{kind} {name!r} lies outside {root}"
        raise NotAllowedError(f"{message}; {_RULE}")
    looked = ", ".join(str(path) for path in dict.fromkeys(candidates))
    raise UsageError(f"there is no {kind} {name!r}; looked for {looked}")


def _file_at(path: Path) -> Path | None:
    try:
        return path.resolve() if path.is_file() else None
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return None


def _folder_at(path: Path) -> Path | None:
    try:
        return path.resolve() if path.is_dir() else None
    except (OSError, ValueError):
        return None
