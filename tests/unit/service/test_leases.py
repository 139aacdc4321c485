"""The lease of a worker on a row (evalcore.service.worker)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from evalcore.service.tables import EvalRunRow
from evalcore.service.worker import RowLease


class SlowDatabase:
    """A database whose answers wait for `answered`; `ends` are what became of its reads."""

    def __init__(self) -> None:
        self.asked, self.answered = asyncio.Event(), asyncio.Event()
        self.ends: list[str] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SlowDatabase]:
        try:
            yield self
        except asyncio.CancelledError:
            self.ends.append("cut off")
            raise
        self.ends.append("read")

    async def scalar(self, _: object) -> None:
        """Answer that the row is not there: it is final by now."""
        self.asked.set()
        await self.answered.wait()


def test_a_look_at_the_database_is_not_cut_off_by_the_end_of_the_row() -> None:
    async def leased() -> tuple[list[str], bool]:
        slow: Any = SlowDatabase()
        lease = RowLease(slow, EvalRunRow, "run", "worker", lambda: False, 60.0)
        async with lease.renewing():
            await slow.asked.wait()
            asyncio.get_running_loop().call_later(0.05, slow.answered.set)
        return slow.ends, lease.has_ended

    # Nor does it end the lease of a worker that has just ended the row itself.
    assert asyncio.run(leased()) == (["read"], False)


def test_a_row_that_is_gone_ends_the_lease() -> None:
    async def leased() -> bool:
        slow: Any = SlowDatabase()
        slow.answered.set()
        lease = RowLease(slow, EvalRunRow, "run", "worker", lambda: False, 60.0)
        async with lease.renewing():
            while not lease.has_ended:
                await asyncio.sleep(0.01)
        return lease.has_ended

    assert asyncio.run(leased())
