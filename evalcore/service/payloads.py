"""Payloads: JSON values inline in the database up to 64 KiB, larger ones in the store."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from evalcore.service.stored_objects import StoredObjects

INLINE_BYTES: Final = 64 * 1024
_PREFIX: Final = "service/payloads"
_READS_AT_ONCE: Final = 8


class Payload(NamedTuple):
    """A stored JSON value: itself, or the key of its object."""

    inline: Any
    ref: str | None


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
        """Return a stored value."""
        if ref is None:
            return inline
        async with self._reads:
            return orjson.loads(await self._objects.get(ref))

    async def get_all(self, payloads: Sequence[tuple[Any, str | None]]) -> list[Any]:
        """Return stored values in order; those in the store are read at the same time."""
        refs = [*{ref for _, ref in payloads if ref is not None}]
        if not refs:
            return [inline for inline, _ in payloads]
        values = await asyncio.gather(*(self.get(None, ref) for ref in refs))
        stored = dict(zip(refs, values, strict=True))
        return [inline if ref is None else stored[ref] for inline, ref in payloads]
