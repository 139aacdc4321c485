"""Names of suite files and folders, which plans and reports hold as text."""

from __future__ import annotations

from pathlib import Path

from evalcore.errors import LoadError, Problem
from evalcore.mistakes.foreign_text import is_unicode


def check_file_name(path: Path, file: str) -> None:
    """Raise `LoadError` if the path has bytes that are no text in the file system's encoding.

    No plan can hold them.
    """
    if not is_unicode(str(path.absolute())):
        message = (
            "its name or that of a folder above it is not UTF-8; rename it (if it is UTF-8, the "
            "locale is not: set PYTHONUTF8=1)"
        )
        raise LoadError((Problem(file, None, "", message),))
