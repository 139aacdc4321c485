"""Folders that tests work in: their owners on this machine, copies, changes of files, removal.

`<root>/<run>/<process>/` belongs to one process. It holds the lock `owner` as long as it lives, so
a process id that is used again is not mistaken for it.
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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.trust.machine_faults import told_as_fault
from evalcore.trust.processes import MARK_NAME, watchdog

OTHER_FOLDER: Final = "EVALCORE_WORKSPACES chooses another folder"
_OWNER: Final = "owner"
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
        from filelock import FileLock

        self._run = root / run_id
        self.folder = self._run / f"{os.getpid()}-{os.urandom(4).hex()}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if root.stat().st_uid != os.getuid():
                raise UsageError(f"{root} belongs to another user: set EVALCORE_WORKSPACES")
            with told_as_fault(f"no workspace can be made below {root}", OTHER_FOLDER):
                self.folder.mkdir(mode=0o700, parents=True)
                self._lock = FileLock(self.folder / _OWNER, fallback_to_soft=False)
                self._lock.acquire()
                (self.folder / _OWNER).write_text(watchdog().mark, "utf-8")
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
        """Release the folder; remove it, or only mirrors and snapshots if workspaces are kept."""
        if keep:
            remove_folder(self.folder / "git")
            remove_folder(self.folder / "snapshots")
        else:
            remove_folder(self.folder)
            with suppress(OSError):  # another process of the run has its own in it
                self._run.rmdir()
        self._lock.release()


class Left(NamedTuple):
    """A process's folder: its run, and whether the process still works in it."""

    run: str
    folder: Path
    in_use: bool


def left_workspaces(root: Path) -> Iterator[Left]:
    """Yield the folders of all processes, by run."""
    if not root.is_dir():
        return
    for run in sorted(path for path in root.iterdir() if path.is_dir()):
        for folder in sorted(path for path in run.iterdir() if path.is_dir()):
            yield Left(run.name, folder, _is_owned(folder))


def clean_workspaces(root: Path, run: str | None = None) -> Iterator[Left]:
    """Remove the folders that no process works in, of one run or of all; yield each.

    What a dead owner's programs have left running is killed first.
    """
    for left in left_workspaces(root):
        if left.in_use or run not in (None, left.run):
            continue
        with suppress(OSError):
            _kill_marked((left.folder / _OWNER).read_text("utf-8", "replace"))
        remove_folder(left.folder)
        with suppress(OSError):
            left.folder.parent.rmdir()
        yield left


def _is_owned(folder: Path) -> bool:
    from filelock import FileLock, Timeout

    owner = folder / _OWNER
    if not owner.is_file():
        return False
    try:
        with FileLock(owner, blocking=False, fallback_to_soft=False):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _kill_marked(mark: str) -> None:
    """Kill every process that bears the mark of a dead one (where the system shows it)."""
    import psutil

    if not mark:
        return
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(MARK_NAME) == mark:
            with suppress(psutil.Error):
                process.kill()


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
# What is kept in memory of the contents of a folder; files beyond it are compared by their digests.
_MOST_CONTENT: Final = 64 << 20
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


def look(folder: Path, earlier_files: Folder | None = None) -> dict[str, FileState]:
    """Return the files of a folder by their paths; states that are still those of earlier stay.

    Others are read, so that a file that is written again as it was is no change.
    """
    earlier_files = earlier_files or {}
    files: dict[str, FileState] = {}
    now = time.time_ns()
    content_bytes = sum(len(state.content or b"") for state in earlier_files.values())
    for name, entry in _files(str(folder), ""):
        state = _state_of(entry, now)
        earlier = earlier_files.get(name)
        if earlier is not None and _is_same(earlier, state):
            state = earlier
        elif state.size <= min(TEXT_BYTES, _MOST_CONTENT - content_bytes):
            state = state._replace(content=_content(entry.path, state))
            content_bytes += state.size
        else:
            state = state._replace(digest=_digest(entry.path, state))
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
    with suppress(OSError):
        if stat.S_ISLNK(state.mode):
            return os.fsencode(Path(path).readlink())
        if stat.S_ISREG(state.mode) and state.size <= TEXT_BYTES:
            return Path(path).read_bytes()
    return None


def _digest(path: str, state: FileState) -> bytes | None:
    with suppress(OSError):
        if stat.S_ISREG(state.mode):
            with Path(path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
    return None


def changes(folder: Path, before: Folder) -> list[Any]:
    """Return the changed files of a folder: `{path, change: added|modified|deleted, size}`.

    In the order of their paths, at most 1 000. A text of up to 64 KiB has its unified `diff`, or
    where its former content is unknown its `content`, up to 256 KiB together.
    """
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
        elif not _is_same(was, now) and _is_other(was, now, entry.path):
            changed.append((name, "modified", now, entry.path))
    changed += [(name, "deleted", None, "") for name in left]
    entries: list[Any] = []
    room = _MOST_TEXT
    for name, change, state, path in sorted(changed, key=itemgetter(0))[:_MOST_CHANGES]:
        # A name that is no UTF-8 cannot be stored.
        shown = os.fsencode(name).decode("utf-8", "replace")
        listed: dict[str, Any] = {"path": shown, "change": change}
        if state is not None:
            listed["size"] = state.size
        if room > 0:
            was = before.get(name)
            old = b"" if was is None else was.content
            new = b"" if state is None else _content(path, state)
            text = _changed_text(shown, change, old, new)
            room -= sum(map(len, text.values()))
            listed |= text
        entries.append(listed)
    return entries


def _is_other(was: FileState, now: FileState, path: str) -> bool:
    """Whether a file is another one, by its content where that is known."""
    if was.mode != now.mode or was.size != now.size:
        return True
    if was.digest is not None:
        return _digest(path, now) != was.digest
    return was.content is None or _content(path, now) != was.content


def _changed_text(name: str, change: str, old: bytes | None, new: bytes | None) -> dict[str, str]:
    """Return the diff or the content of a changed file, if it is a text that is not too long."""
    after = _decoded(new)
    if after is None or (old is not None and len(old) > TEXT_BYTES):
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
