"""The events of an item's workflow: a store that does not take them stops the run.

Blocks and engines turn what they meet into failures of their own; a fault of the store is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalcore.execution.calls import Session
    from evalcore.workflow.events import Event, Snapshot
    from evalcore.workflow.run_store import RunStore


class ItemRunStore:
    """A `RunStore` whose faults are noted in the session, which is asked once the item is done.

    The item's time stands still while the store is slow.
    """

    def __init__(
        self,
        store: RunStore,
        session: Session,
        standing_still: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._store, self._session, self._standing_still = store, session, standing_still

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        with self._standing_still(), self._session.noting_store_faults():
            yield

    async def append_event(self, event: Event) -> None:
        """Keep an event; raise `StoreError`."""
        with self._noting_faults():
            await self._store.append_event(event)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot and every event before it; raise `StoreError`."""
        with self._noting_faults():
            await self._store.save_snapshot(snapshot)

    async def load_snapshot(self, sequence: int | None = None) -> Snapshot | None:
        """Return the latest snapshot; raise `StoreError`."""
        with self._noting_faults():
            return await self._store.load_snapshot(sequence)

    async def load_events(self, after_sequence: int = 0) -> tuple[Event, ...]:
        """Return the events after that number; raise `StoreError`."""
        with self._noting_faults():
            return await self._store.load_events(after_sequence)
