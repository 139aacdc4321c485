"""Payloads: JSON values inline in the database up to 64 KiB, larger ones in the store."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError, ObjectNotFoundError
from evalcore.service.stored_objects import StoredObjects
from evalcore.service.wire.base import StorageDamage

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
