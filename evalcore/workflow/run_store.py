"""Where the events and snapshots of one execution go: memory, or a run's `events/` prefix."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, Protocol

import orjson

from evalcore.redaction.redactor import PROCESS
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import waited_out
from evalcore.workflow.events import Event, EventType, ProviderCall, Snapshot

_SEGMENT_EVENTS: Final = 500
_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


class RunStore(Protocol):
    """Keeps what happened in one execution of a workflow, in the order it happened."""

    async def append_event(self, event: Event) -> None:
        """Keep an event; its sequence number is higher than that of every one before."""

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and make sure that every event before it is kept."""

    async def load_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot; None if there is none."""

    async def load_events(self, after_sequence: int = 0) -> tuple[Event, ...]:
        """Return the events after that number, in order."""


class MemoryRunStore:
    """A `RunStore` that lives as long as its process."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._snapshots: list[Snapshot] = []

    async def append_event(self, event: Event) -> None:
        """Keep an event."""
        self._events.append(event)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        self._snapshots.append(snapshot)

    async def load_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot."""
        return self._snapshots[-1] if self._snapshots else None

    async def load_events(self, after_sequence: int = 0) -> tuple[Event, ...]:
        """Return the events after that number."""
        return tuple(event for event in self._events if event.sequence > after_sequence)


class ObjectRunStore:
    """A `RunStore` below a prefix of an object store, such as `runs/…/events/000012/`.

    Events stand in segments of JSON lines, snapshots are one object each; all are written once,
    from a thread, and again after a pause if the store fails (the item's time stands still);
    `StoreError` if it stays away. An item that is executed again (its worker was killed) writes
    beside what was there: every execution has a folder of its own, named by its time, and the last
    one is read.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._execution: str | None = None
        self._waiting: list[Event] = []

    async def append_event(self, event: Event) -> None:
        """Keep an event; it is written with the next segment or snapshot."""
        self._waiting.append(event)
        if len(self._waiting) >= _SEGMENT_EVENTS:
            await self._flush()

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Write the events that wait, then the snapshot."""
        await self._flush()
        data = PROCESS.line(orjson.dumps(snapshot._asdict(), option=_OPTIONS))
        await self._write(f"snapshot-{snapshot.sequence:06d}.json", data)

    async def load_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot of the last execution."""
        stored = await asyncio.to_thread(self._read, "snapshot-")
        return Snapshot(**orjson.loads(stored[-1])) if stored else None

    async def load_events(self, after_sequence: int = 0) -> tuple[Event, ...]:
        """Return the events of the last execution that were written, after that number."""
        segments = await asyncio.to_thread(self._read, "events-")
        events = (Event(**orjson.loads(line)) for data in segments for line in data.splitlines())
        return tuple(event for event in events if event.sequence > after_sequence)

    async def _flush(self) -> None:
        if not self._waiting:
            return
        lines = [
            PROCESS.line(orjson.dumps(event._asdict(), option=_OPTIONS)) for event in self._waiting
        ]
        first = self._waiting[0].sequence
        self._waiting = []
        await self._write(f"events-{first:06d}.jsonl", b"".join(lines))

    async def _write(self, name: str, data: bytes) -> None:
        if self._execution is None:
            self._execution = f"{time.time_ns():020d}"
        key = f"{self._prefix}{self._execution}/{name}"
        await waited_out(lambda: asyncio.to_thread(self._store.put_if_absent, key, data))

    def _read(self, kind: str) -> list[bytes]:
        execution = self._execution
        if execution is None:
            execution = max(self._store.list_folders(self._prefix), default=None)
        if execution is None:
            return []
        listed = self._store.list(f"{self._prefix}{execution}/{kind}")
        return [self._store.get(info.key).data for info in listed]


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

    async def add_call(self, call: ProviderCall, block: str) -> None:
        """Store the event of a call of a provider."""
        type_ = EventType.MODEL_CALL if call.is_model else EventType.HTTP_CALL
        data = {key: value for key, value in call.as_json().items() if key != "block"}
        await self.add(type_, block, **data)

    async def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        await self._store.save_snapshot(snapshot)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:_LONGEST_TEXT]}…"
    return value
