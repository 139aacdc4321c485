"""Payloads that stand in the object store."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from evalcore.service.context import INLINE_BYTES, Payloads, StoredObjects
from evalcore.storage.local import LocalStore


class ObservedStore(LocalStore):
    """A store that notes how many payloads are read, and how many at the same time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads = self.at_once = self._reading = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> Any:
        if not key.startswith("service/payloads/"):
            return super().get(key)
        with self._lock:
            self.reads += 1
            self._reading += 1
            self.at_once = max(self.at_once, self._reading)
        time.sleep(0.01)
        try:
            return super().get(key)
        finally:
            with self._lock:
                self._reading -= 1


def test_payloads_in_the_store_are_read_once_each_and_a_bounded_number_at_a_time(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        store = ObservedStore(tmp_path)
        objects = StoredObjects(store)
        payloads = Payloads(objects)
        values: list[Any] = [f"{number}" * INLINE_BYTES for number in range(30)]
        values += [1, None, values[0]]
        stored = [await payloads.put(value, "proj_1") for value in values]
        assert [read.value for read in await payloads.read(stored)] == values
        assert store.reads == 30
        assert 1 < store.at_once <= 8
        objects.close()

    asyncio.run(run())
