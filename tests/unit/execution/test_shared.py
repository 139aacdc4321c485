"""The limits that processes share: blocks of the budget, elapsed time."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from evalcore.errors import StoreError
from evalcore.execution.budget import Grant, Spent, TokenDemand, TokenPrice
from evalcore.execution.shared import (
    DEAD_AFTER,
    EARLIER,
    Block,
    SharedState,
    decode_limits,
)
from evalcore.model.exchange import SkippedError
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import this_process
from tests.support.limit_processes import (
    KEYS,
    LimitedProcess,
    MemoryStore,
    stored_limits,
)
from tests.support.virtual_loop import VirtualLoop, run_virtually

T = TypeVar("T")
CALL = TokenDemand(100, 100, TokenPrice())


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return StoredRun(MemoryStore(tmp_path), KEYS)


def virtually(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    return run_virtually(work, itertools.repeat(0.0))


@contextmanager
def alive(processes: Sequence[LimitedProcess]) -> Iterator[list[asyncio.Task[None]]]:
    """Let processes live, each in a task; who cancels one kills the process."""
    tasks = [asyncio.create_task(process.live()) for process in processes]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()


def blocks_of(state: SharedState) -> list[Block]:
    return [block for name, block in state.blocks.items() if name != EARLIER]


# The budget


def test_a_block_is_the_rest_divided_by_twice_the_number_of_processes(run: StoredRun) -> None:
    clock = HandClock()
    for _ in range(4):
        LimitedProcess(run, clock, processes=4, max_tokens=8_000)
    blocks = [block.granted.tokens for block in blocks_of(stored_limits(run))]
    assert blocks == [1_000, 875, 765, 670]


def test_what_a_dead_process_was_granted_counts_as_spent(run: StoredRun) -> None:
    clock = HandClock()
    dead = LimitedProcess(run, clock, max_tokens=6_400)
    assert dead.try_reserve(CALL) is not None
    granted = stored_limits(run).unsettled.tokens
    assert granted == 3_200
    living = LimitedProcess(run, clock, max_tokens=6_400)
    for _ in range(2 * DEAD_AFTER + 1):
        clock.now += 0.5
        living.step()
    state = stored_limits(run)
    assert [block.is_dead for block in blocks_of(state)] == [True, False]
    assert living.budget.spent.tokens == granted
    dead.step()  # it was only paused
    assert [block.is_dead for block in blocks_of(stored_limits(run))] == [False, False]


def test_committed_rows_count_where_there_is_no_object(run: StoredRun) -> None:
    clock = HandClock()
    process = LimitedProcess(run, clock, base=Spent(tokens=900), max_tokens=1_000)
    with pytest.raises(SkippedError, match="900 of 1000 tokens"):
        virtually(lambda loop: reserved(process, TokenDemand(101, 1, TokenPrice())))
    process.sync.leave()
    # They are part of what stands in the object now.
    again = LimitedProcess(run, clock, base=Spent(tokens=900), max_tokens=1_000)
    assert again.budget.spent.tokens == 900


def test_the_block_of_a_process_that_died_on_this_host_is_settled_at_once(run: StoredRun) -> None:
    clock = HandClock()
    LimitedProcess(run, clock, max_tokens=800)
    ended = subprocess.Popen(["true"])
    ended.wait()
    state = stored_limits(run)
    (dead,) = blocks_of(state)
    dead.process = this_process()._replace(pid=ended.pid)
    stored = run.store.get(KEYS.limits)
    run.store.compare_and_swap(KEYS.limits, orjson.dumps(state, default=list), stored.etag)
    living = LimitedProcess(run, clock, max_tokens=800)
    assert [block.is_dead for block in blocks_of(stored_limits(run))] == [True, False]
    assert living.budget.spent.tokens == dead.granted.tokens == 400


async def reserved(process: LimitedProcess, demand: TokenDemand) -> Grant:
    with alive([process]):
        return await process.budget.reserve(demand, 4)


def test_a_process_returns_what_it_does_not_need_before_another_skips(run: StoredRun) -> None:
    async def scenario(loop: VirtualLoop) -> list[Grant]:
        first, second = (LimitedProcess(run, loop.time, max_tokens=800) for _ in range(2))
        with alive([first, second]):
            return await asyncio.gather(*(second.budget.reserve(CALL, 4) for _ in range(4)))

    assert [grant.tokens for grant in virtually(scenario)] == [200] * 4


def test_a_call_that_fits_after_others_have_settled_waits_for_them(run: StoredRun) -> None:
    async def scenario(loop: VirtualLoop) -> tuple[bool, Grant]:
        first, second = (LimitedProcess(run, loop.time, max_tokens=1_000) for _ in range(2))
        long = TokenDemand(100, 700, TokenPrice())
        with alive([first, second]):
            grant = await first.budget.reserve(long, 4)
            waiting = asyncio.create_task(second.budget.reserve(long, 4))
            await asyncio.sleep(60)
            waited = not waiting.done()
            first.budget.settle(grant, Spent(tokens=150), 50)
            return waited, await waiting

    waited, grant = virtually(scenario)
    assert waited
    assert grant.tokens == 800


def test_nobody_waits_for_the_block_of_a_dead_process_for_ever(run: StoredRun) -> None:
    async def scenario(loop: VirtualLoop) -> float:
        dead = LimitedProcess(run, loop.time, max_tokens=350)
        with alive([dead]):
            await dead.budget.reserve(CALL, 4)
        living = LimitedProcess(run, loop.time, max_tokens=350)
        with alive([living]), pytest.raises(SkippedError):
            await living.budget.reserve(TokenDemand(180, 20, TokenPrice()), 4)
        return loop.time()

    assert DEAD_AFTER <= virtually(scenario) < 2 * DEAD_AFTER


# Time, and the store


def test_time_counts_over_processes_and_attempts(run: StoredRun) -> None:
    clock = HandClock()
    first = LimitedProcess(run, clock)
    clock.now += 10
    first.step()
    second = LimitedProcess(run, clock)
    clock.now += 5
    first.sync.leave()
    second.sync.leave()
    clock.now += 1_000  # nothing was at work
    third = LimitedProcess(run, clock)
    clock.now += 2
    assert third.sync.elapsed_s == pytest.approx(17)


def test_a_damaged_object_is_a_clear_error(run: StoredRun) -> None:
    run.store.put_if_absent(KEYS.limits, b"{}")
    with pytest.raises(StoreError, match=r"limits\.json is damaged"):
        LimitedProcess(run, HandClock(), max_tokens=10)


class ReadOnlyStore(LocalStore):
    """A folder that takes no more changes once it is `full`."""

    full = False

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        if self.full:
            raise StoreError(f"{key}: no space left on device")
        return super().compare_and_swap(key, data, etag)


def test_a_store_that_stays_full_fails_the_run_and_nothing_more_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ReadOnlyStore(tmp_path)
    monkeypatch.setattr("evalcore.execution.shared._STORE_RETRIES_S", ())
    process = LimitedProcess(StoredRun(store, KEYS), HandClock(), max_tokens=1_600)
    assert process.try_reserve(CALL) is not None
    process.sync.start()
    store.full = True
    try:
        assert process.has_failed.wait(60)
    finally:
        process.sync.leave()
    assert "cannot be noted" in str(process.failures[0])
    assert process.try_reserve(CALL) is None
    state = decode_limits(store.get(KEYS.limits).data, "")
    assert state.unsettled.tokens >= 200
