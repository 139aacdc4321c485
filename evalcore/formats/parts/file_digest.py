"""The digest of a file of tests, made beside the reading of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Less is hashed in the time that a thread takes.
_LEAST_BYTES: Final = 4 * 1024 * 1024
# A thread waits up to 5 ms for Python's lock after each piece.
_PIECE_BYTES: Final = 4 * 1024 * 1024


def file_digest(path: Path) -> Callable[[], str]:
    """Return what gives the SHA-256 (hex) of a file; of a large one once a thread has made it.

    Raises `OSError` if the file cannot be opened, and what is returned does if it cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size < _LEAST_BYTES:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return lambda: digest
    return _ThreadedDigest(path)


class _ThreadedDigest:
    """The digest of a file that a thread reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._error: OSError | MemoryError | None = None
        self._is_read = threading.Event()
        try:
            threading.Thread(target=self._read, daemon=True).start()
        except RuntimeError:  # a limit of processes or memory lets no thread be made
            self._read()

    def __call__(self) -> str:
        """Wait for the digest and return it; raise what went wrong as it was made."""
        self._is_read.wait()
        if self._error is not None:
            raise self._error
        return self._hash.hexdigest()

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    self._hash.update(piece)
        except (OSError, MemoryError) as error:
            self._error = error
        finally:
            self._is_read.set()
