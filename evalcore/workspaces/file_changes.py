"""The files of a folder, and how a test changed them."""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

# Contents up to here are shown; longer files are compared by their digests.
TEXT_BYTES: Final = 64 * 1024
# What is read before a test: contents in memory, and bytes that are digested. Beyond it, files are
# compared by size and time of change.
_MOST_CONTENT: Final = 64 << 20
_MOST_DIGESTED: Final = 1 << 30
_MOST_CHANGES: Final = 1_000
_MOST_TEXT: Final = 256 * 1024
# A file changed twice within one tick of the file system's clock has the same time both times.
_TICK_NS: Final = 50_000_000
# git's own files say nothing that the others do not, and there are many.
_SKIPPED: Final = ".git"


class FileState(NamedTuple):
    """A file at one moment; `content` or its SHA-256 where it was read.

    A link's content is its target. `sure` says that another size or time of change is certain once
    the content changes.
    """

    mtime_ns: int
    size: int
    mode: int
    content: bytes | None = None
    sure: bool = True
    digest: bytes | None = None


Folder = Mapping[str, FileState]
# The content of a file before the test, from a git commit.
Earlier = Callable[[str], bytes | None]


def look(
    folder: Path, earlier_files: Folder | None = None, *, is_checkout: bool = False
) -> dict[str, FileState]:
    """Return the files of a folder by their paths; states that are still those of earlier stay.

    Others are read, so that a file that is written again as it was is no change. In a fresh
    checkout git knows what they hold, and only those are read whose time of change says nothing.
    """
    earlier_files = earlier_files or {}
    files: dict[str, FileState] = {}
    now = time.time_ns()
    content_bytes = sum(len(state.content or b"") for state in earlier_files.values())
    digested_bytes = 0
    for name, entry in _files(str(folder), ""):
        state = _state_of(entry, now)
        earlier = earlier_files.get(name)
        if earlier is not None and _is_same(earlier, state):
            state = earlier
        elif is_checkout and state.sure:
            pass
        elif state.size <= min(TEXT_BYTES, _MOST_CONTENT - content_bytes):
            state = state._replace(content=_content(entry.path, state))
            content_bytes += state.size
        elif digested_bytes + state.size <= _MOST_DIGESTED:
            state = state._replace(digest=_digest(entry.path, state))
            digested_bytes += state.size
        files[name] = state
    return files


def _files(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # removed or closed meanwhile
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _SKIPPED:
                yield from _files(entry.path, f"{prefix}{entry.name}/")
        elif entry.name != _SKIPPED:
            yield prefix + entry.name, entry


def _state_of(entry: os.DirEntry[str], now_ns: int) -> FileState:
    status = entry.stat(follow_symlinks=False)
    sure = status.st_mtime_ns < now_ns - _TICK_NS
    return FileState(status.st_mtime_ns, status.st_size, status.st_mode, None, sure)


def _is_same(earlier: FileState, now: FileState) -> bool:
    """Whether size, time and mode say for certain that nothing changed."""
    return earlier.sure and earlier[:3] == now[:3]


def _content(path: str, state: FileState) -> bytes | None:
    try:
        if stat.S_ISLNK(state.mode):
            return os.fsencode(Path(path).readlink())
        if not stat.S_ISREG(state.mode) or state.size > TEXT_BYTES:
            return None
        return Path(path).read_bytes()
    except OSError:
        return None


def _digest(path: str, state: FileState) -> bytes | None:
    try:
        if not stat.S_ISREG(state.mode):
            return None
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None


def changes(folder: Path, before: Folder, earlier: Earlier = lambda _: None) -> list[Any]:
    """Return the changed files of a folder: `{path, change: added|modified|deleted, size}`.

    In the order of their paths, at most 1 000. A text of up to 64 KiB has its unified `diff`, or
    where its former content is unknown (also to `earlier`) its `content`, up to 256 KiB together.
    """
    entries: list[Any] = []
    room = _MOST_TEXT
    for name, change, now, path in _changed(folder, before, earlier):
        if len(entries) == _MOST_CHANGES:
            break
        entry: dict[str, Any] = {"path": _text(name), "change": change}
        if now is not None:
            entry["size"] = now.size
        text = _changed_text(name, change, before.get(name), now, path, earlier) if room > 0 else {}
        room -= sum(map(len, text.values()))
        entries.append(entry | text)
    return entries


def _changed(
    folder: Path, before: Folder, earlier: Earlier
) -> Iterator[tuple[str, str, FileState | None, str]]:
    left = set(before)
    changed: list[tuple[str, str, FileState | None, str]] = []
    for name, entry in _files(str(folder), ""):
        left.discard(name)
        try:
            now = _state_of(entry, 0)
        except OSError:
            continue
        was = before.get(name)
        if was is None:
            changed.append((name, "added", now, entry.path))
        elif not _is_same(was, now) and _is_other(name, was, now, entry.path, earlier):
            changed.append((name, "modified", now, entry.path))
    changed += [(name, "deleted", None, "") for name in left]
    yield from sorted(changed, key=lambda change: change[0])


def _is_other(name: str, was: FileState, now: FileState, path: str, earlier: Earlier) -> bool:
    """Whether a file is another one, by its content where that is known."""
    if was.mode != now.mode or was.size != now.size:
        return True
    if was.digest is not None:
        return _digest(path, now) != was.digest
    content = was.content
    if content is None and was[:3] != now[:3] and now.size <= TEXT_BYTES:
        content = earlier(name)
    if content is None:
        return was[:3] != now[:3]
    return _content(path, now) != content


def _changed_text(
    name: str,
    change: str,
    was: FileState | None,
    now: FileState | None,
    path: str,
    earlier: Earlier,
) -> dict[str, str]:
    """Return the diff or the content of a changed file, if it is a text that is not too long."""
    old = b"" if was is None else was.content
    if old is None:
        old = earlier(name)
    new = b"" if now is None else _content(path, now)
    after = _decoded(new)
    if after is None or (old is not None and len(old) > TEXT_BYTES):
        return {}
    if old is None:
        return {} if change == "deleted" else {"content": after}
    text = _decoded(old)
    return {} if text is None else {"diff": _diff(_text(name), change, text, after)}


def _diff(name: str, change: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        "/dev/null" if change == "added" else f"a/{name}",
        "/dev/null" if change == "deleted" else f"b/{name}",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _decoded(data: bytes | None) -> str | None:
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _text(name: str) -> str:
    """Return a file's name as text that can be stored; bytes that are no UTF-8 are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")
