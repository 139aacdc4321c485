"""The folder that workspaces are copies of: read once, written for each."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.errors import TargetError
from evalcore.workspaces.file_changes import TEXT_BYTES, FileState

_MOST_MEMORY: Final = 64 << 20


class _TemplateFile(NamedTuple):
    name: str
    state: FileState


class WorkspaceTemplate:
    """What a folder held when it was read; later changes in it change no workspace.

    Small files are kept in memory, up to 64 MiB in all; the others are read for each copy. Links
    are copied as links. Raises `TargetError` for what is neither file, folder nor link.
    """

    def __init__(self, folder: Path) -> None:
        self._source = os.fspath(folder)
        self._folders: list[tuple[str, int]] = []
        self._files: list[_TemplateFile] = []
        self._room = _MOST_MEMORY
        try:
            self._read(self._source, "")
        except OSError as error:
            message = f"the template {folder} cannot be read: {error.strerror or error}"
            raise TargetError("workspace", message) from error

    def _read(self, folder: str, prefix: str) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            name = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                self._folders.append((name, stat.S_IMODE(status.st_mode)))
                self._read(entry.path, f"{name}/")
                continue
            content: bytes | None = None
            if entry.is_symlink():
                content = os.fsencode(Path(entry.path).readlink())
            elif not stat.S_ISREG(status.st_mode):
                message = f"the template holds '{name}', which is neither a file nor a folder"
                raise TargetError("workspace", message)
            elif status.st_size <= min(TEXT_BYTES, self._room):
                content = Path(entry.path).read_bytes()
                self._room -= len(content)
            state = FileState(status.st_mtime_ns, status.st_size, status.st_mode, content)
            self._files.append(_TemplateFile(name, state))

    def copy_to(self, folder: Path) -> dict[str, FileState]:
        """Write everything into an existing folder; return its files as they are now.

        Modes and times of change are the template's.
        """
        root = os.fspath(folder)
        for name, _ in self._folders:
            os.mkdir(f"{root}/{name}")  # noqa: PTH102  (a Path for each of thousands takes its time)
        files: dict[str, FileState] = {}
        for name, state in self._files:
            files[name] = self._write(f"{root}/{name}", name, state)
        for name, mode in reversed(self._folders):
            if mode != 0o755:
                os.chmod(f"{root}/{name}", mode | stat.S_IRWXU)  # noqa: PTH101  (as above)
        return files

    def _write(self, path: str, name: str, state: FileState) -> FileState:
        if stat.S_ISLNK(state.mode):
            Path(path).symlink_to(os.fsdecode(state.content or b""))
            return state._replace(sure=False)
        if state.content is None:
            shutil.copyfile(f"{self._source}/{name}", path)
            os.chmod(path, stat.S_IMODE(state.mode))  # noqa: PTH101  (as above)
            os.utime(path, ns=(state.mtime_ns, state.mtime_ns))
            return state
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            left = memoryview(state.content)
            while left:
                left = left[os.write(file, left) :]
            os.fchmod(file, stat.S_IMODE(state.mode))
            os.utime(file, ns=(state.mtime_ns, state.mtime_ns))
        finally:
            os.close(file)
        return state
