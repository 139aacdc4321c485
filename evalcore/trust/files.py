"""The files that a suite names: where they are looked for, and what lies out of its reach.

Unlike `glob.glob`, patterns list nothing outside the root, `**` follows no symbolic link, and what
a pattern may take is bounded: a suite may name `**/*.yaml` beside a link to `/`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias

from evalcore.errors import EvalError, NotAllowedError, UsageError
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


LARGEST_TEXT: Final = 64 << 10
ELSEWHERE: Final = ("http://", "https://", "data:")


def attached_paths(value: Any, folder: Path) -> list[Path]:
    """Return the paths of the files that messages attach, each once, in their order.

    Raise `EvalError` for one that is not there or lies outside the repository of `folder`.
    """
    root = repository_root(folder)
    names = (_name_of(segment) for segment in _segments(value))
    return list(dict.fromkeys(resolve_inside(root, folder, name) for name in names if name))


def with_file_texts(value: Any, folder: Path) -> Any:
    """Return messages with the text of each attached file in the place of its name.

    A file of more than 64 KiB, one that is no UTF-8 text and one that cannot be read stand as
    their names with a note. Images and what is no message stay as they are.
    """
    if not any(_name_of(segment) for segment in _segments(value)):
        return value
    return [
        {**message, "content": [_with_text(segment, folder) for segment in message["content"]]}
        if _has_segments(message)
        else message
        for message in value
    ]


def with_files(messages: list[Any], folder: Path) -> list[Any]:
    """Return messages whose file segments also have `path`, `resolved_path` and `text`.

    `text` is there for a file that `with_file_texts` shows, the paths for one that is there.
    """
    if not any(_name_of(segment) for segment in _segments(messages)):
        return messages
    return [
        {**message, "content": [_with_path(segment, folder) for segment in message["content"]]}
        if _has_segments(message)
        else message
        for message in messages
    ]


def _segments(value: Any) -> Iterator[Mapping[str, Any]]:
    for message in value if isinstance(value, list | tuple) else ():
        if _has_segments(message):
            yield from (part for part in message["content"] if isinstance(part, Mapping))


def _has_segments(message: Any) -> bool:
    return isinstance(message, Mapping) and isinstance(message.get("content"), list | tuple)


def _name_of(segment: Mapping[str, Any]) -> str | None:
    """Return the name of the file that a segment attaches; None if it attaches none."""
    name = segment.get("value")
    if segment.get("type") != "file" or not isinstance(name, str) or name.startswith(ELSEWHERE):
        return None
    return name.removeprefix("file://")


def _with_path(segment: Any, folder: Path) -> Any:
    name = _name_of(segment) if isinstance(segment, Mapping) else None
    if not name:
        return segment
    try:
        path = resolve_inside(repository_root(folder), folder, name)
        located = {**segment, "path": name, "resolved_path": str(path)}
        return {**located, "text": path.read_text("utf-8-sig")} if _is_short(path) else located
    except UnicodeDecodeError:
        return located
    except (EvalError, OSError):  # removed since the suite was loaded
        return segment


def _with_text(segment: Any, folder: Path) -> Any:
    name = _name_of(segment) if isinstance(segment, Mapping) else None
    if not name:
        return segment
    try:
        path = resolve_inside(repository_root(folder), folder, name)
        note = f"{path.stat().st_size:,} bytes"
        if not _is_short(path):
            return _text(f"[file: {name}, {note}: too large to be shown here]")
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        return _text(f"[file: {name}, {note}: no text]")
    except (EvalError, OSError) as error:
        return _text(f"[file: {name}: {error}]")
    return _text(f'<file name="{name}">\n{text}\n</file>')


def _is_short(path: Path) -> bool:
    return path.stat().st_size <= LARGEST_TEXT


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "value": text}
