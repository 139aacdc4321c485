"""The folders of workspaces on this machine, their owners, and the removal of abandoned ones.

`<root>/<run>/<process>/` belongs to one process. It holds the lock `owner` as long as it lives, so
a process id that is used again is not mistaken for it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.trust.machine_faults import told_as_fault
from evalcore.trust.watchdog import MARK_NAME, watchdog

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
        folder = self.folder / "workspaces" / safe
        for number in range(1, 1_000_000):
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                folder = folder.with_name(f"{safe}-{number}")
            else:
                break
        return folder

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


def remove_folder(folder: Path) -> bool:
    """Remove a folder and all that is in it, read-only or not; return whether it is gone."""

    def retry(remove: Callable[[str], Any], path: str, _: object) -> None:
        with suppress(OSError):
            parent = Path(path).parent
            parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
            target = Path(path)
            if target.is_dir() and not target.is_symlink():
                target.chmod(stat.S_IRWXU)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    if _remove_quickly(str(folder)):
        return True
    shutil.rmtree(folder, onerror=retry)
    return not folder.exists()


def _remove_quickly(folder: str) -> bool:
    """Remove a folder whose entries let themselves be removed; nothing is followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not _remove_quickly(entry.path):
                        return False
                else:
                    os.unlink(entry.path)  # noqa: PTH108  (a Path for each takes its time)
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return not os.path.lexists(folder)
    except OSError:
        return False
    return True
