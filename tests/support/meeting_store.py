"""A remote store in a folder where requests wait for each other: those that are not made at once
fail."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from evalcore.storage.store import ObjectInfo, StoredObject
from tests.support.counting_store import CountingStore

_LONGEST_S = 60.0


class MeetingStore(CountingStore):
    """Each request named by `meet` waits until all of them are made.

    A request is named by its kind and the part of a run's folder (`GET plan`), or an object in it
    (`GET plan/suite.json`).
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._barrier = threading.Barrier(1)
        self._left: set[str] = set()
        self._lock = threading.Lock()

    def meet(self, *requests: str) -> None:
        """Let the next one of each of these requests wait for the others."""
        self._barrier = threading.Barrier(len(requests))
        self._left = set(requests)

    @property
    def met(self) -> bool:
        """Whether all of them were under way at the same time."""
        return not self._left and not self._barrier.broken

    def get(self, key: str) -> StoredObject:
        self._meet("GET", key)
        return super().get(key)

    def exists(self, key: str) -> bool:
        self._meet("HEAD", key)
        return super().exists(key)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        self._meet("PUT", key)
        return super().put(key, data)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        self._meet("PUT", key)
        return super().put_if_absent(key, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._meet("LIST", prefix)
        return super().list(prefix)

    def _meet(self, kind: str, key: str) -> None:
        names = {f"{kind} {self.part_of(key)}", f"{kind} {'/'.join(key.split('/')[3:])}"}
        with self._lock:
            if not (awaited := names & self._left):
                return
            self._left -= awaited
        self._barrier.wait(_LONGEST_S)
