"""A copy of a workspace as it was at one moment, to take it back there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from evalcore.errors import TargetError
from evalcore.workspaces.process_folder import remove_folder


class ResetCopy:
    """The files of `folder`, copied to `copy`, which must not exist yet."""

    def __init__(self, folder: Path, copy: Path) -> None:
        self._folder, self._copy = folder, copy
        _copy(folder, copy)

    def restore(self) -> None:
        """Make the folder what it was: contents, modes, times of change."""
        remove_folder(self._folder)
        _copy(self._copy, self._folder)

    def remove(self) -> None:
        """Remove the copy."""
        remove_folder(self._copy)


def _copy(source: Path, destination: Path) -> None:
    """Copy a folder; sockets and pipes, which programs have left, are not copied."""
    try:
        shutil.copytree(source, destination, symlinks=True, ignore=_special_files)
    except (OSError, shutil.Error) as error:
        raise TargetError("workspace", f"the workspace cannot be copied: {error}") from error


def _special_files(folder: str, names: list[str]) -> list[str]:
    special = []
    for name in names:
        mode = os.lstat(os.path.join(folder, name)).st_mode  # noqa: PTH118  (thousands)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            special.append(name)
    return special
