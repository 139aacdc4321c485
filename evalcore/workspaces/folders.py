"""Folders that tests work in: copies, changes of files, removal.

`<root>/<run>/<process>/` belongs to one process.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.trust.machine_faults import told_as_fault

OTHER_FOLDER: Final = "EVALCORE_WORKSPACES chooses another folder"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS: Final = 60


def workspaces_root(configured: str | None) -> Path:
    """Return the folder of all workspaces: the configured one, else one of the system's own.

    Not below the suite's repository: programs that look upward for a repository or for
    instructions must not find those.
    """
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(tempfile.gettempdir()) / f"evalcore-workspaces-{os.getuid()}"


class ProcessFolder:
    """A process's own folder below the root, made at once.

    Raises `UsageError` if it cannot be made, `StoreError` if the disk has no room for it.
    """

    def __init__(self, root: Path, run_id: str) -> None:
        self._run = root / run_id
        self.folder = self._run / f"{os.getpid()}-{os.urandom(4).hex()}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if root.stat().st_uid != os.getuid():
                raise UsageError(f"{root} belongs to another user: set EVALCORE_WORKSPACES")
            with told_as_fault(f"no workspace can be made below {root}", OTHER_FOLDER):
                self.folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            reason = f"no workspace can be made below {root}: {error.strerror or error}"
            raise UsageError(f"{reason} ({OTHER_FOLDER})") from error

    def new_folder(self, name: str) -> Path:
        """Return a new empty folder that is called like this, as far as a file system allows."""
        safe = _UNSAFE.sub("-", name).strip("-.")[:_NAME_CHARACTERS] or "workspace"
        for number in itertools.count():
            folder = self.folder / "workspaces" / (f"{safe}-{number}" if number else safe)
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                return folder
        raise AssertionError

    def leave(self, *, keep: bool) -> None:
        """Remove the folder, or only mirrors and snapshots if workspaces are kept."""
        if keep:
            remove_folder(self.folder / "git")
            remove_folder(self.folder / "snapshots")
        else:
            remove_folder(self.folder)
            with suppress(OSError):  # another process of the run has its own in it
                self._run.rmdir()


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, read-only or not, as far as that is possible."""

    def retry(remove: Callable[[str], Any], path: str, _: object) -> None:
        target = Path(path)
        with suppress(OSError):
            target.parent.chmod(target.parent.stat().st_mode | stat.S_IRWXU)
            if target.is_dir() and not target.is_symlink():
                target.chmod(stat.S_IRWXU)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    shutil.rmtree(folder, onerror=retry)


def copy_folder(source: Path, destination: Path) -> None:
    """Copy what is in a folder, with modes and times of change, into another one.

    Links stay links. What is neither file, folder nor link is left out; folders can be written.
    """
    destination.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                copy_folder(Path(entry.path), destination / entry.name)
            elif entry.is_symlink() or entry.is_file():
                shutil.copy2(entry.path, destination / entry.name, follow_symlinks=False)
    shutil.copystat(source, destination)
    destination.chmod(destination.stat().st_mode | stat.S_IRWXU)


# Contents up to here are shown; longer files are compared by their digests.
TEXT_BYTES: Final = 64 * 1024
# What is kept in memory of the contents of a folder.
_MOST_CONTENT: Final = 64 << 20
_MOST_CHANGES: Final = 1_000
_MOST_TEXT: Final = 256 * 1024
# git's own files say nothing that the others do not, and there are many.
_SKIPPED: Final = ".git"


class FileState(NamedTuple):
    """A file at one moment: its mode and size, the SHA-256 of its content, and the content where it
    is short; a link's content is its target.
    """

    mode: int
    size: int
    digest: bytes
    content: bytes | None = None


Folder = Mapping[str, FileState]


def look(folder: Path) -> dict[str, FileState]:
    """Return the files of a folder by their paths."""
    files: dict[str, FileState] = {}
    room = _MOST_CONTENT
    for name, entry in _files(str(folder), ""):
        with suppress(OSError):  # removed or closed meanwhile
            state = _state_of(entry)
            room -= len(state.content or b"")
            files[name] = state if room >= 0 else state._replace(content=None)
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


def _state_of(entry: os.DirEntry[str]) -> FileState:
    status, path = entry.stat(follow_symlinks=False), Path(entry.path)
    mode, size = status.st_mode, status.st_size
    if stat.S_ISREG(mode) and size > TEXT_BYTES:
        with path.open("rb") as file:
            return FileState(mode, size, hashlib.file_digest(file, "sha256").digest())
    content = b""
    if stat.S_ISLNK(mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(mode):
        content = path.read_bytes()
    return FileState(mode, size, hashlib.sha256(content).digest(), content)


def changes(folder: Path, before: Folder) -> list[Any]:
    """Return the changed files of a folder: `{path, change: added|modified|deleted, size}`.

    In the order of their paths, at most 1 000. A text of up to 64 KiB has its unified `diff`, or
    where its former content is unknown its `content`, up to 256 KiB together.
    """
    after = look(folder)
    pairs = ((name, before.get(name), after.get(name)) for name in {**before, **after})
    changed = [pair for pair in sorted(pairs, key=itemgetter(0)) if _is_other(*pair[1:])]
    entries: list[Any] = []
    room = _MOST_TEXT
    for name, was, now in changed[:_MOST_CHANGES]:
        change = "added" if was is None else "deleted" if now is None else "modified"
        # A name that is no UTF-8 cannot be stored.
        shown = os.fsencode(name).decode("utf-8", "replace")
        listed: dict[str, Any] = {"path": shown, "change": change}
        if now is not None:
            listed["size"] = now.size
        if room > 0:
            old, new = (b"" if state is None else state.content for state in (was, now))
            text = _changed_text(shown, change, old, new)
            room -= sum(map(len, text.values()))
            listed |= text
        entries.append(listed)
    return entries


def _is_other(was: FileState | None, now: FileState | None) -> bool:
    return was is None or now is None or was[:3] != now[:3]


def _changed_text(name: str, change: str, old: bytes | None, new: bytes | None) -> dict[str, str]:
    """Return the diff or the content of a changed file, if it is a text that is not too long."""
    after = _decoded(new)
    if after is None:
        return {}
    if old is None:
        return {} if change == "deleted" else {"content": after}
    before = _decoded(old)
    if before is None:
        return {}
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        "/dev/null" if change == "added" else f"a/{name}",
        "/dev/null" if change == "deleted" else f"b/{name}",
    )
    return {"diff": "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)}


def _decoded(data: bytes | None) -> str | None:
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
