"""Notes of the items that a run's processes begin: those begun twice are counted after a crash."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.runs import StoredRun

_ITEM_BYTES = 8


class StartedItems:
    """Appends the number of each item that this process begins to a file in the run's folder.

    A killed process loses nothing that it has noted. Stores without files have no such notes, nor
    have items whose output is given. What cannot be written is left out: it is a count for people.
    """

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._file: int | None = None
        self._is_open = False

    def note(self, item: int) -> None:
        """Note that an item begins."""
        if not self._is_open:
            self._is_open = True
            with suppress(StoreError, OSError):
                self._file = self._opened()
        if self._file is not None:
            with suppress(OSError):
                os.write(self._file, item.to_bytes(_ITEM_BYTES, sys.byteorder))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int | None:
        store, keys = self._run.store, self._run.keys
        key = f"{keys.begun_prefix}{uuid4().hex}"
        if store.local_path(keys.manifest) is None or store.put_if_absent(key, b"") is None:
            return None
        path = store.local_path(key)
        return None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND)


def count_restarted(run: StoredRun, items: int) -> int | None:
    """Return how often an item of the run was begun that had been begun before; None: not noted."""
    is_begun = bytearray(items)
    noted, again = False, 0
    for numbers in _notes(run):
        for item in numbers:
            if item < items:
                noted = True
                again += is_begun[item]
                is_begun[item] = 1
    return again if noted else None


def _notes(run: StoredRun) -> Iterator[array[int]]:
    for info in run.store.list(run.keys.begun_prefix):
        with suppress(ObjectNotFoundError):
            data = run.store.get(info.key).data
            numbers = array("Q")
            numbers.frombytes(data[: len(data) // _ITEM_BYTES * _ITEM_BYTES])
            yield numbers
