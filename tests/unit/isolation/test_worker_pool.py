"""Jobs that use the processes of one pool."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from evalcore.isolation.pool import Job, WorkerPool

_ITEM: ContextVar[str] = ContextVar("item")


def test_each_jobs_questions_are_answered_in_the_context_of_its_own_call() -> None:
    """The second job uses the process that was started for the first one."""

    async def item_of_call(name: str, value: Any) -> str:
        return _ITEM.get()

    async def called(pool: WorkerPool, item: str) -> Any:
        _ITEM.set(item)
        entry = "tests.unit.isolation.worker_entries:ask"
        return await pool.call(Job(entry, None, item_of_call))

    async def both() -> list[Any]:
        pool = WorkerPool(limit=1)
        try:
            return [await asyncio.create_task(called(pool, item)) for item in ("first", "second")]
        finally:
            pool.close()

    assert asyncio.run(both()) == ["first", "second"]
