"""The pool under every schedule: it ends, commits each shard once, and keeps to its limit."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

import pytest
from evalcore.execution.open_shards import OpenShard, OpenShards
from evalcore.execution.pool import SAMPLE, Pool
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalcore.errors import StoreError
from evalcore.execution.calls import Calls, RunCallContext
from evalcore.execution.item import ItemRunner
from evalcore.execution.limits import RunLimits
from evalcore.execution.row import FinishedItem
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.planning.expand import WorkItem
from evalcore.settings import Settings
from tests.support.virtual_loop import HangError, VirtualLoop, run_virtually

# Beyond what any schedule below can take.
LATEST_S = 100_000.0


class Attempt(NamedTuple):
    """A call of so many seconds, and the pause after it (None: it was answered)."""

    call_s: float
    pause_s: float | None = None


class Script(NamedTuple):
    """What an item does: calls side by side, each of several attempts; cancelled after a while."""

    calls: tuple[tuple[Attempt, ...], ...]
    cancelled_after_s: float | None = None


class Schedule(NamedTuple):
    """One way in which a run may go. Times in seconds."""

    limit: int
    shard_items: tuple[int, ...]
    scripts: tuple[Script, ...]
    pilot: bool
    thread_s: tuple[float, ...]
    limits: tuple[tuple[float, int], ...] = ()
    failing_commits: frozenset[int] = frozenset()
    failing_shards: frozenset[int] = frozenset()
    stop_s: float | None = None


POLICY = Policy(ScoreRule.WEIGHTED, ())
DEFINITION = SuiteDefinition("s", Format.SUITE, Source("s.yaml", ".", ""), POLICY)
TIMES = st.sampled_from([0.0, 0.001, 0.5, 0.5, 1.0, 2.0, 7.0])
ATTEMPTS = st.builds(Attempt, TIMES, st.one_of(st.none(), TIMES))
SCRIPTS = st.builds(
    Script,
    st.lists(st.lists(ATTEMPTS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(
        tuple
    ),
    st.one_of(st.none(), st.none(), TIMES),
)
SCHEDULES = st.builds(
    Schedule,
    limit=st.integers(1, 6),
    shard_items=st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple),
    scripts=st.lists(SCRIPTS, min_size=1, max_size=8).map(tuple),
    pilot=st.booleans(),
    thread_s=st.lists(TIMES, min_size=1, max_size=6).map(tuple),
    limits=st.lists(st.tuples(TIMES, st.integers(1, 8)), max_size=3).map(tuple),
    failing_commits=st.frozensets(st.integers(0, 5), max_size=1),
    failing_shards=st.frozensets(st.integers(0, 5), max_size=1),
    stop_s=st.one_of(st.none(), st.none(), TIMES),
)


class Items:
    """Runs items by their scripts, and counts those that run."""

    def __init__(self, schedule: Schedule, limit: Callable[[], int]) -> None:
        self._scripts = schedule.scripts
        self._limit = limit
        self.running: Counter[int] = Counter()

    def waits(self, item: WorkItem) -> bool:
        return bool(self._scripts)

    async def run(self, item: WorkItem, calls: Calls) -> FinishedItem:
        script = self._scripts[item.number % len(self._scripts)]
        work = asyncio.gather(*(self._call(item, attempts, calls) for attempts in script.calls))
        with suppress(TimeoutError):
            async with asyncio.timeout(script.cancelled_after_s):
                await work
        return FinishedItem(item, State.COMPLETED, 0, 1)

    async def _call(self, item: WorkItem, attempts: tuple[Attempt, ...], calls: Calls) -> None:
        slot = calls.slot
        try:
            await slot.begin_call()
            admitted = True
            for attempt in attempts:
                await self._attempt(item, attempt.call_s, admitted=admitted)
                if attempt.pause_s is None:
                    return
                await slot.pause(attempt.pause_s)
                admitted = not slot.is_running
                await slot.regain()
        finally:
            slot.end_call()

    async def _attempt(self, item: WorkItem, seconds: float, *, admitted: bool) -> None:
        self.running[item.number] += 1
        try:
            # A limit that falls stops nothing that runs; what begins keeps to it.
            assert not admitted or len(+self.running) <= self._limit()
            await asyncio.sleep(seconds)
        finally:
            self.running[item.number] -= 1


class Shards:
    """Shards in memory; opening and committing one may fail."""

    def __init__(self, schedule: Schedule) -> None:
        starts = [0, *itertools.accumulate(schedule.shard_items)]
        self._items = [range(*pair) for pair in itertools.pairwise(starts)]
        self._schedule = schedule
        self.committed: Counter[int] = Counter()
        self.failed: list[int] = []
        self.begun_after_failure = 0

    def begin(self, shard: int) -> list[WorkItem]:
        self.begun_after_failure += bool(self.failed)
        if shard in self._schedule.failing_shards:
            self.failed.append(shard)
            raise StoreError("no such shard")
        return [work_item(number) for number in self._items[shard]]

    def is_begun(self, shard: int) -> bool:
        return True

    def store_blobs(self, shard: OpenShard) -> None:
        raise AssertionError(f"shard {shard.number} has no blobs")

    def commit(self, shard: OpenShard) -> None:
        assert shard.missing == 0
        assert all(shard.lines)
        if shard.number in self._schedule.failing_commits:
            self.failed.append(shard.number)
            raise StoreError("no room")
        self.committed[shard.number] += 1


def work_item(number: int) -> WorkItem:
    return WorkItem(number, Case(f"c{number}"), Variant("default"), None, 0, "e", "g")


class Played(NamedTuple):
    """How a schedule went."""

    shards: Shards
    running: int
    error: StoreError | None
    ended_s: float


def play(schedule: Schedule) -> Played:
    limits = RunLimits(DEFINITION, Settings(), concurrency=schedule.limit)
    # The limits in force at this moment: what was let in a moment ago begins now.
    in_force = [schedule.limit]
    items, shards = Items(schedule, lambda: max(in_force)), Shards(schedule)
    bench = OpenShards(cast(ItemRunner, items), shards)
    pool = Pool(bench, RunCallContext(limits))
    numbers = range(len(schedule.shard_items))
    errors: list[StoreError] = []

    def change(loop: VirtualLoop, limit: int) -> None:
        in_force.append(limit)
        limits.window.limit = limit
        loop.call_later(0.0005, in_force.pop, 0)

    async def execute(loop: VirtualLoop) -> float:
        for seconds, limit in schedule.limits:
            loop.call_later(seconds, change, loop, limit)
        if schedule.stop_s is not None:
            loop.call_later(schedule.stop_s, pool.stop)
        begun = bench.open(0) if schedule.pilot and 0 not in schedule.failing_shards else ()
        first: Iterable[int] = () if begun else numbers
        following = (lambda: numbers[1:]) if begun else None
        try:
            async with asyncio.timeout(LATEST_S):
                await pool.run(first, begun, following)
        except StoreError as error:
            errors.append(error)
        return loop.now

    ended = run_virtually(execute, itertools.cycle(schedule.thread_s))
    return Played(shards, len(+items.running), errors[0] if errors else None, ended)


# The smallest case that once hung: the pilot's last item comes back when all others wait for it.
PAUSED_PILOT = Schedule(
    limit=8,
    shard_items=(SAMPLE, 44, 44),
    scripts=(*[Script(((Attempt(0.5),),))] * 30, Script(((Attempt(0.5, 2.0), Attempt(0.5)),))),
    pilot=True,
    thread_s=(0.001,),
)
# Two commits fail while everything waits for shards of other lanes.
FAILED_LAST_COMMIT = Schedule(
    limit=2,
    shard_items=(2, 2, 2),
    scripts=(Script(((Attempt(0.5),),)),),
    pilot=False,
    thread_s=(0.0, 0.0, 7.0, 1.0, 1.0, 7.0),
    failing_commits=frozenset({0}),
)


@settings(max_examples=250, deadline=None)
@example(PAUSED_PILOT)
@example(FAILED_LAST_COMMIT)
@given(SCHEDULES)
def test_every_schedule_ends_with_each_shard_committed_once(schedule: Schedule) -> None:
    shards, running, error, _ = play(schedule)
    assert running == 0
    assert set(shards.committed.values()) <= {1}
    if error is not None:
        assert shards.failed
    elif schedule.stop_s is None:
        assert not shards.failed
        whole = {number for number, items in enumerate(schedule.shard_items) if items}
        assert set(shards.committed) == whole


def others_shards(until_s: float, loop: list[VirtualLoop]) -> Iterator[int]:
    """Yield a shard, then wait for what other lanes do with theirs."""
    yield 0
    while loop[0].now < until_s:
        yield 1  # of no items: nothing of it is this lane's


def test_a_failed_commit_ends_a_pool_that_waits_for_the_shards_of_others() -> None:
    schedule = Schedule(
        limit=2,
        shard_items=(2, 0),
        scripts=(Script(((Attempt(0.5),),)),),
        pilot=False,
        thread_s=(1.0,),
        failing_commits=frozenset({0}),
    )
    shards = Shards(schedule)
    bench = OpenShards(cast(ItemRunner, Items(schedule, lambda: 2)), shards)
    pool = Pool(bench, RunCallContext(RunLimits(DEFINITION, Settings(), concurrency=2)))
    loops: list[VirtualLoop] = []

    async def execute(loop: VirtualLoop) -> float:
        loops.append(loop)
        with pytest.raises(StoreError, match="no room"):
            await pool.run(others_shards(LATEST_S, loops))
        return loop.now

    assert run_virtually(execute, itertools.repeat(1.0)) < 10


def test_the_loop_of_these_tests_sees_a_wait_that_never_ends() -> None:
    async def wait(_: VirtualLoop) -> Any:
        await asyncio.Event().wait()

    with pytest.raises(HangError):
        run_virtually(wait, itertools.repeat(0.0))
