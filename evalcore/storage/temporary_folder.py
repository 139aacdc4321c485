"""A folder for what is written on its way: a full disk there is told as that, with what would work.

It costs no result: the run goes on when there is room.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evalcore.trust.machine_faults import DISK_FAULTS, unwritable


@contextmanager
def temporary_folder(prefix: str = "evalcore-") -> Iterator[Path]:
    """Give a folder for as long as the context.

    Raises `StoreError` if it cannot be made, or written into.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise unwritable(error) from error
    with directory as folder:
        try:
            yield Path(folder)
        except OSError as error:
            if not _is_written_in(Path(folder), error):
                raise
            raise unwritable(error) from error


def _is_written_in(folder: Path, error: OSError) -> bool:
    """Whether an error is of writing into the folder; a file's own writes do not name it."""
    name = error.filename
    if isinstance(name, str):
        return Path(name).is_relative_to(folder)
    return name is None and error.errno in DISK_FAULTS
