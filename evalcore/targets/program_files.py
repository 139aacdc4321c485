"""The files of a program that answers, in a folder that is removed when it has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from evalcore.errors import StoreError, TargetError
from evalcore.trust.machine_faults import noting_faults, unwritable, waited_out


@asynccontextmanager
async def program_files(texts: Mapping[str, str]) -> AsyncIterator[Path]:
    """Give a folder with these files, as long as the context.

    Raises `StoreError` if it cannot be written, or if it is gone once the program has ended without
    an answer: a program that finds none of its files has not failed.
    """

    async def write() -> TemporaryDirectory[str]:
        return _written(texts)

    with await waited_out(write) as name:
        folder = Path(name)
        try:
            yield folder
        except (TargetError, OSError) as error:
            if folder.is_dir():
                raise
            with noting_faults():
                reason = "the folder of a program's files is gone"
                raise StoreError(f"{folder}: {reason} (TMPDIR chooses another folder)") from error


def _written(texts: Mapping[str, str]) -> TemporaryDirectory[str]:
    try:
        directory = TemporaryDirectory(prefix="evalcore-", ignore_cleanup_errors=True)
    except OSError as error:
        raise unwritable(error) from error
    try:
        for name, text in texts.items():
            (Path(directory.name) / name).write_bytes(text.encode(errors="replace"))
    except OSError as error:
        directory.cleanup()
        raise unwritable(error) from error
    return directory
