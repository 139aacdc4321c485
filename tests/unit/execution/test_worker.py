"""The worker of a process: the items of several shards side by side, in one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import Context, ContextVar
from typing import NamedTuple, cast

import pytest

from evalcore.errors import StoreError
from evalcore.execution.calls import Calls, RunCallContext
from evalcore.execution.item import ItemRunner
from evalcore.execution.limits import RunLimits
from evalcore.execution.row import FinishedItem
from evalcore.execution.worker import (
    OpenRun,
    OpenShard,
    RunShards,
    ShardReceipt,
    Stopped,
    Worker,
)
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.planning.expand import WorkItem
from evalcore.settings import Settings

KEY = ("store", "run", 1)
DEFINITION = SuiteDefinition(
    "s", Format.SUITE, Source("s.yaml", ".", ""), Policy(ScoreRule.WEIGHTED, ())
)
CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Items:
    """Items that wait for a gate, which is open unless a test closes it."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.callers: dict[int, str] = {}
        self.running = self.most = self.begun_before_first = 0
        self.begun = threading.Semaphore(0)
        self.closed = False
        self.failing: set[int] = set()
        self.instant = False

    def waits(self, item: WorkItem) -> bool:
        return not self.instant

    async def run(self, item: WorkItem, calls: Calls | None = None) -> FinishedItem:
        self.order.append(item.number)
        self.callers[item.number] = CALLER.get()
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.release()
        try:
            if not self.instant:
                await asyncio.sleep(0)
                self.begun_before_first = self.begun_before_first or len(self.order)
                if item.number in self.failing:
                    self.failing.discard(item.number)
                    raise StoreError("the store is away")
                await asyncio.sleep(0.001)
                while self.closed:
                    await asyncio.sleep(0.001)
        finally:
            self.running -= 1
        return FinishedItem(item, State.COMPLETED, 0, 1)

    def wait_for(self, number: int) -> None:
        """Wait until so many more items have begun."""
        for _ in range(number):
            assert self.begun.acquire(timeout=60)


class Shards:
    """Shards of ten items in memory."""

    def __init__(self) -> None:
        self.committed: Counter[int] = Counter()
        self.faults: Counter[int] = Counter()
        self.size = 10

    def open(self, shard: int, context: Context) -> OpenShard:
        items = [
            WorkItem(number, Case(f"c{number}"), Variant("default"), None, shard, "e", "g")
            for number in range(shard * self.size, (shard + 1) * self.size)
        ]
        return OpenShard(shard, items, [b""] * len(items), len(items), context=context)

    def record(self, shard: OpenShard, position: int, *_: object, is_planned: bool) -> None:
        shard.lines[position] = b"row %d" % position
        shard.missing -= 1

    def store_blobs(self, _: OpenShard) -> None:
        """Nothing is large."""

    def commit(self, shard: OpenShard) -> ShardReceipt:
        if self.faults[shard.number]:
            self.faults[shard.number] -= 1
            raise StoreError("the store is away")
        self.committed[shard.number] += 1
        return ShardReceipt(shard.number, len(shard.items), True)


class Bench(NamedTuple):
    worker: Worker
    items: Items
    shards: Shards
    closed: threading.Event
    """Is set when the run has returned what limits lent it."""
    make: Callable[[Worker], OpenRun]

    def open(self, *, held: bool = True) -> OpenRun:
        return self.worker.open(KEY, self.make, held=held)


@pytest.fixture
def bench() -> Iterator[Bench]:
    items, shards, closed = Items(), Shards(), threading.Event()

    def make(worker: Worker) -> OpenRun:
        return OpenRun(
            worker,
            cast(RunShards, shards),
            cast(ItemRunner, items),
            lambda: RunCallContext(RunLimits(DEFINITION, Settings(), concurrency=4)),
            closing=closed.set,
        )

    worker = Worker()
    yield Bench(worker, items, shards, closed, make)
    items.closed = False
    worker.close(KEY)
    worker.call(worker.loop.stop)


def ended(*futures: Future[ShardReceipt | Stopped]) -> list[ShardReceipt | Stopped]:
    return [future.result(60) for future in futures]


def test_items_of_several_shards_begin_in_order_and_no_more_at_once_than_the_limit(
    bench: Bench,
) -> None:
    bench.shards.size = 3  # no multiple of the limit: shards share the places
    opened = bench.open()
    receipts = ended(*[opened.execute(shard) for shard in range(10)])
    assert [receipt.shard for receipt in receipts] == list(range(10))
    assert bench.items.most == 4
    assert bench.items.order == list(range(30))
    assert bench.shards.committed == dict.fromkeys(range(10), 1)


def test_a_shard_that_waits_for_its_last_item_leaves_the_other_places_to_the_next(
    bench: Bench,
) -> None:
    bench.shards.size, bench.items.closed = 1, True
    opened = bench.open()
    futures = [opened.execute(shard) for shard in range(4)]
    bench.items.wait_for(4)
    bench.items.closed = False
    assert len(ended(*futures)) == 4


@pytest.mark.parametrize("instant", [True, False])
def test_items_see_the_context_variables_of_the_call_of_their_shard(
    bench: Bench, instant: bool
) -> None:
    bench.items.instant = instant
    opened, futures = bench.open(), []
    for shard, caller in enumerate(("a", "b", "c")):
        token = CALLER.set(caller)
        futures.append(opened.execute(shard))
        CALLER.reset(token)
    ended(*futures)
    assert bench.items.callers == {number: "abc"[number // 10] for number in range(30)}


def test_a_run_without_calls_closes_and_returns_what_limits_lent(bench: Bench) -> None:
    ended(bench.open(held=False).execute(0))
    assert bench.closed.wait(60)
    assert bench.worker.find(KEY) is None
    ended(bench.open(held=False).execute(1))  # opened again
    assert bench.shards.committed == {0: 1, 1: 1}


def test_a_stop_cancels_what_runs_and_begins_nothing_more(bench: Bench) -> None:
    bench.items.closed = True
    opened = bench.open()
    futures = [opened.execute(shard) for shard in range(3)]
    bench.items.wait_for(4)
    opened.stop("the run was cancelled")
    reason = "the run was cancelled"
    assert ended(*futures) == [Stopped(shard, reason) for shard in range(3)]
    assert ended(opened.execute(3)) == [Stopped(3, reason)]
    opened.close()
    assert (bench.items.running, len(bench.items.order)) == (0, 4)
    assert not bench.shards.committed


def test_a_drained_run_ends_the_shards_that_it_has_begun(bench: Bench) -> None:
    bench.items.closed = True
    opened = bench.open()
    futures = [opened.execute(shard) for shard in range(2)]
    bench.items.wait_for(4)  # of the first shard; none has ended
    opened.drain()
    bench.items.closed = False
    first, second = ended(*futures)
    assert isinstance(first, ShardReceipt)
    assert second == Stopped(1)
    assert ended(opened.execute(2)) == [Stopped(2)]
    assert bench.items.order == list(range(10))


def test_rows_that_could_not_be_committed_are_committed_by_the_next_call_of_the_shard(
    bench: Bench,
) -> None:
    bench.shards.faults[1] = 2
    opened = bench.open()
    for _ in range(2):
        with pytest.raises(StoreError, match="the store is away"):
            ended(opened.execute(1))
    ended(opened.execute(0), opened.execute(1))
    assert bench.shards.committed == {0: 1, 1: 1}
    assert Counter(bench.items.order) == dict.fromkeys(range(20), 1)


def test_a_store_that_fails_under_an_item_fails_its_shard_and_a_later_call_works(
    bench: Bench,
) -> None:
    bench.items.failing = {3}
    opened = bench.open()
    with pytest.raises(StoreError, match="the store is away"):
        ended(opened.execute(0))
    assert isinstance(opened.execute(0).result(60), ShardReceipt)
    assert bench.shards.committed == {0: 1}


def test_a_run_that_has_failed_for_good_refuses_later_shards(bench: Bench) -> None:
    bench.items.closed = True
    opened = bench.open()
    running = opened.execute(0)
    bench.items.wait_for(4)
    opened.fail(StoreError("what it spends cannot be noted"))
    for future in (running, opened.execute(1)):
        with pytest.raises(StoreError, match="cannot be noted"):
            future.result(60)


def test_a_single_item_is_run_and_not_committed(bench: Bench) -> None:
    opened = bench.open()
    assert opened.row(2, 25).result(60) == b"row 5"
    assert bench.items.order == [25]
    assert not bench.shards.committed
