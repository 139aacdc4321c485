"""The worker under every schedule: each shard ends, is committed once, and calls keep the limit."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evalcore.errors import StoreError
from evalcore.execution.calls import Calls, RunCallContext
from evalcore.execution.item import ItemRunner
from evalcore.execution.limits import RunLimits
from evalcore.execution.row import FinishedItem
from evalcore.execution.worker import OpenRun, OpenShard, RunShards, ShardReceipt, Stopped, Worker
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.planning.expand import WorkItem
from evalcore.settings import Settings
from tests.support.examples import examples
from tests.support.virtual_loop import HangError, VirtualLoop, run_virtually

# Beyond what any schedule below can take.
LATEST_S = 100_000.0


class Script(NamedTuple):
    """What an item does: calls of so many seconds side by side; cancelled after a while."""

    calls_s: tuple[float, ...]
    cancelled_after_s: float | None = None


class Schedule(NamedTuple):
    """One way in which a run may go. Times in seconds.

    `ahead` shards are in flight at once. The store fails the first times that shards are opened and
    committed, by shard.
    """

    limit: int
    shard_items: tuple[int, ...]
    scripts: tuple[Script, ...]
    ahead: int
    thread_s: tuple[float, ...]
    limits: tuple[tuple[float, int], ...] = ()
    failing_commits: tuple[int, ...] = ()
    failing_opens: tuple[int, ...] = ()
    drain_s: float | None = None
    stop_s: float | None = None


POLICY = Policy(ScoreRule.WEIGHTED, ())
DEFINITION = SuiteDefinition("s", Format.SUITE, Source("s.yaml", ".", ""), POLICY)
TIMES = st.sampled_from([0.0, 0.001, 0.5, 0.5, 1.0, 2.0, 7.0])
SCRIPTS = st.builds(
    Script,
    st.lists(TIMES, min_size=1, max_size=2).map(tuple),
    st.one_of(st.none(), st.none(), TIMES),
)
FAULTS = st.lists(st.integers(0, 5), max_size=3).map(tuple)
SCHEDULES = st.builds(
    Schedule,
    limit=st.integers(1, 6),
    shard_items=st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=8).map(tuple),
    ahead=st.integers(1, 4),
    thread_s=st.lists(TIMES, min_size=1, max_size=6).map(tuple),
    limits=st.lists(st.tuples(TIMES, st.integers(1, 8)), max_size=3).map(tuple),
    failing_commits=FAULTS,
    failing_opens=FAULTS,
    drain_s=st.one_of(st.none(), st.none(), TIMES),
    stop_s=st.one_of(st.none(), st.none(), TIMES),
)


class Items:
    """Runs items by their scripts, and counts those that run."""

    def __init__(self, schedule: Schedule, limit: Callable[[], int]) -> None:
        self._scripts = schedule.scripts
        self._limit = limit
        self.running = 0
        self.begun: Counter[int] = Counter()

    def waits(self, item: WorkItem) -> bool:
        return True

    async def run(self, item: WorkItem, calls: Calls) -> FinishedItem:
        self.begun[item.number] += 1
        script = self._scripts[item.number % len(self._scripts)]
        work = asyncio.gather(*map(asyncio.sleep, script.calls_s))
        self.running += 1
        try:
            # A limit that falls stops nothing that runs; what begins keeps to it.
            assert self.running <= self._limit()
            with suppress(TimeoutError):
                async with asyncio.timeout(script.cancelled_after_s):
                    await work
        finally:
            self.running -= 1
        return FinishedItem(item, State.COMPLETED, 0, 1)


class Shards:
    """Shards in memory; opening and committing them may fail."""

    def __init__(self, schedule: Schedule) -> None:
        starts = [0, *itertools.accumulate(schedule.shard_items)]
        self.items = [range(*pair) for pair in itertools.pairwise(starts)]
        self._failing_opens = Counter(schedule.failing_opens)
        self._failing_commits = Counter(schedule.failing_commits)
        self.committed: Counter[int] = Counter()

    def open(self, shard: int, context: Context) -> OpenShard:
        self._fail(shard, self._failing_opens)
        items = [work_item(number) for number in self.items[shard]]
        return OpenShard(shard, items, [b""] * len(items), len(items), context=context)

    def record(self, shard: OpenShard, position: int, _: FinishedItem, *, is_planned: bool) -> None:
        assert not is_planned
        assert not shard.lines[position]
        shard.lines[position] = b"row"
        shard.missing -= 1

    def has_large_blobs(self, _: OpenShard) -> bool:
        return False

    def commit(self, shard: OpenShard) -> ShardReceipt:
        assert shard.missing == 0
        assert all(shard.lines)
        self._fail(shard.number, self._failing_commits)
        self.committed[shard.number] += 1
        return ShardReceipt(shard.number, len(shard.items), True)

    def _fail(self, shard: int, faults: Counter[int]) -> None:
        if faults[shard]:
            faults[shard] -= 1
            raise StoreError("the store is away")


def work_item(number: int) -> WorkItem:
    return WorkItem(number, Case(f"c{number}"), Variant("default"), None, 0, "e", "g")


class VirtualWorker:
    """What an open run needs of its worker, in a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(coroutine)

    def call(self, function: Callable[[], None]) -> None:
        self.loop.call_soon(function)

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        return await self.loop.run_in_executor(None, function)

    def close_idle(self, _: OpenRun) -> None:
        """Leave the run open."""


class Played(NamedTuple):
    """How a schedule went: how each shard ended."""

    shards: Shards
    items: Items
    ends: tuple[ShardReceipt | Stopped, ...]


def play(schedule: Schedule) -> Played:
    limits = RunLimits(DEFINITION, Settings(), concurrency=schedule.limit)
    # The limits in force at this moment: what was let in a moment ago begins now.
    in_force = [schedule.limit]
    items, shards = Items(schedule, lambda: max(in_force)), Shards(schedule)

    def change(loop: VirtualLoop, limit: int) -> None:
        in_force.append(limit)
        limits.window.limit = limit
        loop.call_later(0.0005, in_force.pop, 0)

    async def execute(loop: VirtualLoop) -> tuple[ShardReceipt | Stopped, ...]:
        opened = OpenRun(
            cast(Worker, VirtualWorker(loop)),
            cast(RunShards, shards),
            cast(ItemRunner, items),
            lambda: RunCallContext(limits),
        )
        for seconds, limit in schedule.limits:
            loop.call_later(seconds, change, loop, limit)
        for end_s, end in ((schedule.drain_s, opened.drain), (schedule.stop_s, opened.stop)):
            if end_s is not None:
                loop.call_later(end_s, end)
        flight = asyncio.Semaphore(schedule.ahead)

        async def end_of(shard: int) -> ShardReceipt | Stopped:
            async with flight:
                while True:
                    try:
                        ended: ShardReceipt | Stopped = await cast(Any, opened.execute(shard))
                        return ended
                    except StoreError:
                        await asyncio.sleep(1)

        async with asyncio.timeout(LATEST_S):
            ends = await asyncio.gather(*map(end_of, range(len(schedule.shard_items))))
            while items.running:  # those that were cancelled
                await asyncio.sleep(0.1)
        return tuple(ends)

    return Played(shards, items, run_virtually(execute, itertools.cycle(schedule.thread_s)))


# The first shard's commit fails twice while the others run.
FAILED_COMMITS = Schedule(
    limit=2,
    shard_items=(2, 2, 2),
    scripts=(Script((0.5,)),),
    ahead=3,
    thread_s=(0.0, 0.0, 7.0, 1.0, 1.0, 7.0),
    failing_commits=(0, 0),
)
# No item has ended when the run is drained.
DRAINED_EARLY = Schedule(
    limit=2,
    shard_items=(4, 4),
    scripts=(Script((2.0,)),),
    ahead=2,
    thread_s=(0.0,),
    drain_s=1.0,
)


@examples(60)
@example(FAILED_COMMITS)
@example(DRAINED_EARLY)
@given(SCHEDULES)
def test_every_schedule_ends_with_each_shard_committed_once(schedule: Schedule) -> None:
    shards, items, ends = play(schedule)
    committed = {end.shard for end in ends if isinstance(end, ShardReceipt)}
    assert shards.committed == dict.fromkeys(committed, 1)
    # A fault of the store repeats no call.
    assert set(items.begun.values()) <= {1}
    begun = {shard for shard, numbers in enumerate(shards.items) if items.begun.keys() & numbers}
    if schedule.stop_s is None:
        assert committed == begun
    if schedule.stop_s is None and schedule.drain_s is None:
        assert len(committed) == len(schedule.shard_items)


def test_the_loop_of_these_tests_sees_a_wait_that_never_ends() -> None:
    async def wait(_: VirtualLoop) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(HangError):
        run_virtually(wait, itertools.repeat(0.0))
