"""The object store as requests use it: in threads of its own, for a bounded time.

A store that is away must hold up neither requests that do without it nor those that need it for
longer than a client waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.store import ObjectStore

T = TypeVar("T")
_THREADS: Final = 16
_ANSWER_S: Final = 30.0
_PROBE_S: Final = 5.0
# Written once: a store without it is another one, such as the folder below an unmounted volume.
_MARKER: Final = "service/store"


class StoredObjects:
    """Reads and writes objects; all methods raise `StoreError` if the store does not answer."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_THREADS, "object-store")
        self._is_known = False

    async def put(self, key: str, data: bytes) -> None:
        """Write an object, unless the store has been removed: the object would vanish with it."""
        await self._call(_ANSWER_S, self._put, key, data)

    async def get(self, key: str) -> bytes:
        """Return the bytes of an object."""
        return (await self._call(_ANSWER_S, self._store.get, key)).data

    async def check(self) -> None:
        """Return if the store answers and is the one that it was when the service started."""
        await self._call(_PROBE_S, self._check)

    def close(self) -> None:
        """Wait for no call any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _put(self, key: str, data: bytes) -> None:
        self._check()
        self._store.put(key, data)

    def _check(self) -> None:
        try:
            self._store.get(_MARKER)
        except ObjectNotFoundError:
            if self._is_known:
                raise StoreError(
                    f"{_MARKER} is gone from {self._store.url}: the store was removed or is not "
                    "mounted. Put it back, or start the service again to begin an empty one"
                ) from None
            self._store.put_if_absent(_MARKER, b"evalcore\n")
        self._is_known = True

    async def _call(self, answer_s: float, function: Callable[..., T], *arguments: object) -> T:
        call = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        try:
            async with asyncio.timeout(answer_s):
                return await call
        except TimeoutError:
            message = f"{self._store.url} does not answer within {answer_s:g} s"
            raise StoreError(message) from None
