"""How the first items of a pool begin."""

from __future__ import annotations

import asyncio
from typing import cast

from evalcore.execution.open_shards import OpenShard, OpenShards
from evalcore.execution.pool import Pool

from evalcore.execution.calls import Calls, RunCallContext
from evalcore.execution.item import ItemRunner
from evalcore.execution.limits import RunLimits
from evalcore.execution.row import FinishedItem
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.planning.expand import WorkItem
from evalcore.settings import Settings

ITEMS = 100
DEFINITION = SuiteDefinition(
    "s", Format.SUITE, Source("s.yaml", ".", ""), Policy(ScoreRule.WEIGHTED, ())
)


class Items:
    """Notes how many items have begun when the first one goes on; all end once all have begun."""

    def __init__(self) -> None:
        self.begun = self.begun_before_first = 0
        self._all_begun = asyncio.Event()

    def waits(self, item: WorkItem) -> bool:
        return True

    async def run(self, item: WorkItem, calls: Calls) -> FinishedItem:
        self.begun += 1
        if self.begun == ITEMS:
            self._all_begun.set()
        await asyncio.sleep(0)
        self.begun_before_first = self.begun_before_first or self.begun
        await self._all_begun.wait()
        return FinishedItem(item, State.COMPLETED, 0, 1)


class Shard:
    """A shard in memory."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def begin(self, shard: int) -> list[WorkItem]:
        return [
            WorkItem(number, Case(f"c{number}"), Variant("default"), None, shard, "e", "g")
            for number in range(ITEMS)
        ]

    def store_blobs(self, shard: OpenShard) -> None:
        raise AssertionError(f"shard {shard.number} has no blobs")

    def is_begun(self, shard: int) -> bool:
        raise AssertionError(f"shard {shard} is opened with work items")

    def commit(self, shard: OpenShard) -> None:
        self.committed.append(shard.number)


def run_shard() -> tuple[Items, Shard]:
    shard = Shard()

    async def run() -> Items:
        items = Items()
        open_shards = OpenShards(cast(ItemRunner, items), shard)
        context = RunCallContext(RunLimits(DEFINITION, Settings(), concurrency=ITEMS))
        await asyncio.wait_for(Pool(open_shards, context).run(range(1)), 120)
        return items

    return asyncio.run(run()), shard


def test_the_first_call_goes_out_before_the_last_one_is_made() -> None:
    items, _ = run_shard()
    assert items.begun_before_first < ITEMS / 4


def test_every_slot_is_taken_although_items_begin_a_few_at_a_time() -> None:
    items, shard = run_shard()
    assert items.begun == ITEMS
    assert shard.committed == [0]
