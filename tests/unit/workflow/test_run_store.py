"""Events and snapshots, kept in memory or in an object store, come back as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from evalcore.storage.address import open_store
from evalcore.workflow.events import Event, Snapshot
from evalcore.workflow.run_store import MemoryRunStore, ObjectRunStore, RunStore

EVENTS = tuple(
    Event(number, "block_completed", 1.5 * number, f"b{number}", {"output": "ö", "n": number})
    for number in range(1, 1202)
)
FIRST = Snapshot(600, "running", {"a": "1"}, {"outputs": {"a": 1}})
LAST = Snapshot(1201, "failed", {"a": "1", "b": "x"}, {"outputs": {}}, "block 'c': gone")

Make = Callable[[], RunStore]


@pytest.fixture(params=["memory", "objects"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "memory":
        memory = MemoryRunStore()
        return lambda: memory
    store = open_store(str(tmp_path))
    return lambda: ObjectRunStore(store, "runs/s/r/events/0000003/")


async def fill(store: RunStore) -> None:
    for event in EVENTS:
        await store.append_event(event)
        if event.sequence == FIRST.sequence:
            await store.save_snapshot(FIRST)
    await store.save_snapshot(LAST)


def test_what_was_kept_comes_back(make: Make) -> None:
    async def check() -> None:
        await fill(make())
        reader = make()
        assert await reader.load_events() == EVENTS
        assert await reader.load_events(after_sequence=1199) == EVENTS[-2:]
        assert await reader.load_snapshot() == LAST

    asyncio.run(check())


def test_an_empty_store_has_nothing(make: Make) -> None:
    async def check() -> None:
        assert await make().load_events() == ()
        assert await make().load_snapshot() is None

    asyncio.run(check())


def test_a_second_execution_stands_beside_the_first(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    prefix = "runs/s/r/events/0000003/"

    async def check() -> None:
        await fill(ObjectRunStore(store, prefix))
        again = ObjectRunStore(store, prefix)
        await again.append_event(EVENTS[0])
        await again.save_snapshot(Snapshot(1, "completed", {}, {}))
        reader = ObjectRunStore(store, prefix)
        assert await reader.load_events() == EVENTS[:1]
        found = await reader.load_snapshot()
        assert found is not None
        assert found.state == "completed"

    asyncio.run(check())
    assert len(list(store.list_folders(prefix))) == 2
