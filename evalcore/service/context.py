"""The object store as requests use it: in threads of its own, for a bounded time.

A store that is away must hold up neither requests that do without it nor those that need it for
longer than a client waits.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import orjson

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError
from evalcore.service.auth import Caller, RateLimiter, Scope, Tokens, project_id
from evalcore.service.db import Database
from evalcore.service.metrics import ServiceMetrics
from evalcore.service.models import StorageDamage
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


INLINE_BYTES: Final = 64 * 1024
# What the values of a page may have together; one row may have more, and is a page then.
PAGE_BYTES: Final = 10_000_000
_PREFIX: Final = "service/payloads"
_READS_AT_ONCE: Final = 8
_ROWS_AT_ONCE: Final = 8

StoredValue = tuple[Any, str | None]


class DamagedPayloadError(EvalError):
    """A value cannot be read: its object is missing or has other bytes than were written."""


class Payload(NamedTuple):
    """A stored JSON value: itself, or the key of its object."""

    inline: Any
    ref: str | None


class ReadValue(NamedTuple):
    """A value as it was read: its size in bytes, and why it cannot be read (then it is None)."""

    value: Any
    size: int
    damage: str | None = None


class Payloads:
    """Stores JSON values; objects are named by their content, so writing one twice changes nothing.

    All methods raise `StoreError` if the store does not answer.
    """

    def __init__(self, objects: StoredObjects) -> None:
        self._objects = objects
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    async def put(self, value: Any, project_id: str) -> Payload:
        """Return where a value stands now. It has to be written before the row that names it."""
        text = orjson.dumps(value)
        if len(text) <= INLINE_BYTES:
            return Payload(value, None)
        key = f"{_PREFIX}/{project_id}/{hashlib.sha256(text).hexdigest()}.json"
        await self._objects.put(key, text)
        return Payload(None, key)

    async def get(self, inline: Any, ref: str | None) -> Any:
        """Return a stored value. Raises `DamagedPayloadError`."""
        (read,) = await self.read([(inline, ref)])
        if read.damage is not None:
            raise DamagedPayloadError(read.damage)
        return read.value

    async def read(self, stored: Sequence[StoredValue]) -> list[ReadValue]:
        """Return stored values in order; those in the store are read at the same time."""
        refs = [*{ref for _, ref in stored if ref is not None}]
        values = await asyncio.gather(*(self._read(ref) for ref in refs))
        of_refs = dict(zip(refs, values, strict=True))
        return [
            ReadValue(inline, len(orjson.dumps(inline))) if ref is None else of_refs[ref]
            for inline, ref in stored
        ]

    async def read_rows(self, rows: Sequence[Sequence[StoredValue]]) -> list[list[ReadValue]]:
        """Return the values of the first rows, in order.

        As many rows as have `PAGE_BYTES` together, and one at least.
        """
        complete: list[list[ReadValue]] = []
        size = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[start : start + _ROWS_AT_ONCE]
            values = iter(await self.read([stored for row in chunk for stored in row]))
            for row in chunk:
                of_row = [next(values) for _ in row]
                size += sum(read.size for read in of_row)
                if complete and size > PAGE_BYTES:
                    return complete
                complete.append(of_row)
        return complete

    async def _read(self, ref: str) -> ReadValue:
        async with self._reads:
            try:
                text = await self._objects.get(ref)
            except ObjectNotFoundError:
                # A store that is not mounted has no object at all, and is an outage.
                await self._objects.check()
                return ReadValue(None, 0, f"{ref} is missing from the store")
        if hashlib.sha256(text).hexdigest() != ref.rpartition("/")[2].removesuffix(".json"):
            return ReadValue(None, 0, f"{ref} is damaged: other bytes were written")
        return ReadValue(orjson.loads(text), len(text))


def damage_of(fields: Mapping[str, ReadValue]) -> StorageDamage | None:
    """Return which fields of a record cannot be read, and why."""
    damaged = {name: read.damage for name, read in fields.items() if read.damage is not None}
    if not damaged:
        return None
    reasons = "; ".join(dict.fromkeys(damaged.values()))
    return StorageDamage(fields=[*damaged], message=f"{reasons}. Restore it from a backup")


MAX_BODY_BYTES = 10_000_000
LEASE_S = 15.0
RUNS_AT_ONCE = 4


class Worker(Protocol):
    """Something that runs as long as the service does."""

    async def start(self) -> None:
        """Begin; return at once."""

    async def stop(self) -> None:
        """Finish what can be finished soon, hand back the rest."""

    def wake(self) -> None:
        """Look for work now."""


@dataclass
class Suspects:
    """Which row in execution may be the one that ended the process before.

    There is one at the most, so that a row that ends the process takes no other suspect with it.
    `claiming` is held by the worker that looks for a row.
    """

    claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    in_execution: str | None = None


@dataclass
class Parts:
    """Everything that routes use. `open_to` is the caller of requests without a token.

    Those have to name a loopback address or one of `allowed_hosts`.
    """

    database: Database
    store: ObjectStore
    tokens: Tokens
    rates: RateLimiter
    open_to: Caller | None = None
    allowed_hosts: Sequence[str] = ()
    max_body_bytes: int = MAX_BODY_BYTES
    lease_s: float = LEASE_S
    workers: Sequence[Worker] = ()
    objects: StoredObjects = field(init=False)
    payloads: Payloads = field(init=False)
    suspects: Suspects = field(default_factory=Suspects)
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)

    def __post_init__(self) -> None:
        self.objects = StoredObjects(self.store)
        self.payloads = Payloads(self.objects)

    async def start(self) -> None:
        """Start the workers; a store that is away is waited for."""
        with suppress(StoreError):
            await self.objects.check()
        for worker in self.workers:
            await worker.start()

    def wake(self) -> None:
        """Tell the workers that there is something to do."""
        for worker in self.workers:
            worker.wake()

    def clear_suspect(self, row_id: str) -> None:
        """Let the next row be executed whose worker died; this one has ended or come forward."""
        if self.suspects.in_execution == row_id:
            self.suspects.in_execution = None
            self.wake()

    async def stop(self) -> None:
        """Stop the workers, all at once, and close the database."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        self.objects.close()
        await self.database.close()


async def open_caller(database: Database) -> Caller:
    """Return the caller of a service without tokens: the admin of the project `default`."""
    async with database.transaction() as session:
        return Caller(await project_id(session, "default", datetime.now(UTC)), Scope.ADMIN)
