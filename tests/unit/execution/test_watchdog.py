"""The watchdog: what waits for nothing ends, what is in flight is left alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from evalcore.errors import ExitCode, StalledError
from evalcore.execution.call_context import RunCallContext
from evalcore.execution.calls import Calls
from evalcore.execution.item import ItemRunner
from evalcore.execution.limits import RunLimits
from evalcore.execution.open_shards import OpenShard, OpenShards
from evalcore.execution.pool import Pool
from evalcore.execution.row import FinishedItem
from evalcore.execution.watchdog import StallWatchdog
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.planning.expand import WorkItem
from evalcore.settings import Settings

STALL_S = 0.2
DEFINITION = SuiteDefinition(
    "s", Format.SUITE, Source("s.yaml", ".", ""), Policy(ScoreRule.WEIGHTED, ())
)

Work = Callable[[Calls], Awaitable[None]]


class Items:
    """Runs every item by calling a function."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def waits(self, item: WorkItem) -> bool:
        return True

    async def run(self, item: WorkItem, calls: Calls) -> FinishedItem:
        try:
            await calls.slot.begin_call()
            await self._work(calls)
        finally:
            calls.slot.end_call()
        return FinishedItem(item, State.COMPLETED, 0, 1)


class Shards:
    """Shards of two items, in memory."""

    def __init__(self, commit_s: float = 0.0) -> None:
        self._commit_s = commit_s
        self.committed: list[int] = []

    def begin(self, shard: int) -> list[WorkItem]:
        return [
            WorkItem(number, Case(f"c{number}"), Variant("default"), None, 0, "e", "g")
            for number in range(2 * shard, 2 * shard + 2)
        ]

    def is_begun(self, shard: int) -> bool:
        return True

    def store_blobs(self, shard: OpenShard) -> None:
        raise AssertionError(f"shard {shard.number} has no blobs")

    def commit(self, shard: OpenShard) -> None:
        time.sleep(self._commit_s)
        self.committed.append(shard.number)


def execute(
    work: Work, shards: Shards | None = None, abandon: Callable[[StalledError], None] | None = None
) -> list[int]:
    """Run four items, each by `work`; return the shards that were committed."""
    shards = shards or Shards()
    watchdog = StallWatchdog("run-1", STALL_S, abandon, ends_within_s=0.1)
    bench = OpenShards(cast(ItemRunner, Items(work)), shards)

    async def run() -> None:
        pool = Pool(bench, RunCallContext(RunLimits(DEFINITION, Settings(), concurrency=1)))
        with watchdog.watching(pool):
            await pool.run(range(2))

    try:
        asyncio.run(run())
    finally:
        watchdog.close()
    return sorted(shards.committed)


async def waits_for_others_for_ever(calls: Calls) -> None:
    with calls.slot.blocking():
        await asyncio.Event().wait()


def test_items_that_wait_for_each_other_end_the_run_with_what_they_wait_for() -> None:
    with pytest.raises(StalledError) as raised:
        execute(waits_for_others_for_ever)
    text = str(raised.value)
    assert text.startswith("run run-1: nothing was in flight and nothing was committed for 0.2 s: ")
    assert "1 item waiting for a slot, for the budget or for a provider's limit" in text
    assert "1 have not begun" in text
    assert text.endswith("go on with: evalcore run --resume run-1")
    assert raised.value.exit_code is ExitCode.ERRORS


async def runs_long(_: Calls) -> None:
    await asyncio.sleep(3 * STALL_S)


async def backs_off_long(calls: Calls) -> None:
    await calls.slot.pause(3 * STALL_S)
    await calls.slot.regain()


async def blocks_the_loop(_: Calls) -> None:
    time.sleep(3 * STALL_S)


async def waits_while_others_run(calls: Calls) -> None:
    side = asyncio.create_task(runs_long(calls))
    await side


@pytest.mark.parametrize(
    "work", [runs_long, backs_off_long, blocks_the_loop, waits_while_others_run]
)
def test_what_is_in_flight_may_take_long(work: Work) -> None:
    assert execute(work) == [0, 1]


async def at_once(_: Calls) -> None:
    return


def test_a_slow_commit_is_in_flight() -> None:
    assert execute(at_once, Shards(commit_s=3 * STALL_S)) == [0, 1]


def test_a_stuck_event_loop_ends_the_process() -> None:
    freed = threading.Event()
    abandoned: list[StalledError] = []

    def abandon(error: StalledError) -> None:
        abandoned.append(error)
        freed.set()

    async def stuck(calls: Calls) -> None:
        with calls.slot.blocking():
            freed.wait()

    with pytest.raises(StalledError):
        execute(stuck, abandon=abandon)
    assert [str(error) for error in abandoned] == [str(abandoned[0])]
