"""Append chunks of bytes to a file and hash them, each while the next one is made."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import IO


def write_chunks(file: IO[bytes], chunks: Iterable[bytes]) -> str:
    """Append the chunks in their order; return the BLAKE2b hash (hex, 16 bytes) of all of them.

    A thread writes and hashes a chunk, for both of which it needs no interpreter. Raises what went
    wrong in it, or what making the chunks raises.
    """
    writer = _Writer(file)
    try:
        for chunk in chunks:
            writer.append(chunk)
    finally:
        writer.join()
    writer.raise_failed()
    return writer.digest.hexdigest()


class _Writer:
    """Writes at most one chunk at a time behind its caller."""

    def __init__(self, file: IO[bytes]) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._file = file
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def append(self, chunk: bytes) -> None:
        """Begin to write a chunk when the one before is written; raise what went wrong with it."""
        self.join()
        self.raise_failed()
        thread = threading.Thread(target=self._write, args=(chunk,), name="write-chunk")
        try:
            thread.start()
        except RuntimeError:  # a limit of processes or memory lets no thread be made
            self._write(chunk)
        else:
            self._thread = thread

    def _write(self, chunk: bytes) -> None:
        try:
            self._file.write(chunk)
            self.digest.update(chunk)
        except BaseException as error:  # noqa: BLE001 - raised again where the chunks are made
            self._failed = error

    def join(self) -> None:
        """Wait for the chunk that is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def raise_failed(self) -> None:
        """Raise what went wrong with a chunk."""
        if self._failed is not None:
            raise self._failed
