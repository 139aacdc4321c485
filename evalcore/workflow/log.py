"""The events of one execution as they are numbered, timed and handed to its store."""

from __future__ import annotations

import time
from typing import Any, Final

from evalcore.workflow.events import Event, EventType, Snapshot
from evalcore.workflow.run_store import RunStore

_LONGEST_TEXT: Final = 8_000


class EventLog:
    """Numbers the events of an execution, its sub-workflows' among them."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._began = time.perf_counter()
        self.sequence = 0

    async def add(self, type_: EventType, block: str | None = None, **data: Any) -> None:
        """Store an event; texts in it are cut at 8 000 characters, the snapshot has them whole."""
        self.sequence += 1
        at_ms = round((time.perf_counter() - self._began) * 1000, 3)
        fields = {key: _cut(value) for key, value in data.items() if value is not None}
        await self._store.append_event(Event(self.sequence, type_.value, at_ms, block, fields))

    async def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        await self._store.save_snapshot(snapshot)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]}…"
    return value
